// SPDX-License-Identifier: GPL-2.0-only
/*
 * The child ends with this process, and what it attached with the child.
 */
#include "prices.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"
#include "kernel_features.h"
#include "price_rounds.h"

enum { COUNTS_MOST = 16 /* of CPUs: 1, 2, 4 ... */, POSSIBLE_MOST = 4096 };

#define NICE_MEASURING (-10) /* or busy CPUs never meet: it takes some milliseconds of each */
#define OWN_LIMIT_NS (800 * NS_PER_MS)
#define LIMIT_NS (950 * NS_PER_MS) /* then the child is killed */

static u64 deadline_ns;

/* Probe the functions in this process; 0, or an error below. */
static int attach(int file, int map, bool has_multi)
{
	u64 entries[] = {ENTRY * PRICE_SLOT, STEPPED * PRICE_SLOT}, returning = RETURN * PRICE_SLOT;
	u64 cookies[2] = {0};
	char path[32];
	int program = load_counter(map, has_multi ? ATTACH_UPROBE_MULTI : 0), link;

	if (program < 0)
		return program;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	if (has_multi) {
		link = open_multi_link(program, path, &returning, cookies, 1, getpid(), true);
		return link < 0 ? link
				: open_multi_link(program, path, entries, cookies, 2, getpid(),
						  false);
	}
	link = open_event_link(program, path, returning, 0, getpid(), true);
	for (u32 i = 0; i < COUNT(entries) && link >= 0; i++)
		link = open_event_link(program, path, entries[i], 0, getpid(), false);
	return link;
}

/* How often the program ran, on all CPUs. */
static u64 hits_of(int map)
{
	static u64 by_cpu[POSSIBLE_MOST];
	u64 sum = 0;
	int possible = libbpf_num_possible_cpus();

	if (possible <= 0 || possible > POSSIBLE_MOST ||
	    bpf_map_lookup_elem(map, &(u32){0}, by_cpu))
		return 0;
	for (int i = 0; i < possible; i++)
		sum += by_cpu[i];
	return sum;
}

/* The CPUs that this process may use. */
static u32 own_cpus(u32 *cpus)
{
	cpu_set_t own;
	u32 count = 0;

	if (sched_getaffinity(0, sizeof(own), &own))
		return 0;
	for (u32 cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &own))
			cpus[count++] = cpu;
	return count;
}

/* What the child does; the reason if it failed. */
static const char *measure(FILE *to)
{
	static u32 cpus[CPU_SETSIZE];
	u32 counts[COUNTS_MOST] = {1}, counts_count = 1, all = own_cpus(cpus);
	int map = bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, "tlstax_prices", 4, 8, 1, NULL);
	int file = price_code_map();

	if (map < 0 || file < 0)
		return strerror(errno);
	if (!all)
		return "its CPUs cannot be told";
	bool has_multi = features_try_multi();
	int error = attach(file, map, has_multi);
	if (error < 0)
		return strerror(-error);
	if (all > 1) /* what matters most comes first */
		counts[counts_count++] = all;
	for (u32 count = 2; count < all && counts_count < COUNTS_MOST; count *= 2)
		counts[counts_count++] = count;
	for (u32 i = 0; i < counts_count && monotonic_ns() < deadline_ns; i++) {
		u64 before = hits_of(map);
		if (!price_rounds_run(cpus, all, counts[i], deadline_ns))
			return "no threads can be started";
		if (hits_of(map) - before < price_rounds_calls() / 10 * 9)
			return "the kernel does not run the program at every hit";
		if (!price_rounds_put(to, has_multi) && !i)
			return "the host is too busy";
	}
	return NULL;
}

/* Never returns. The last line is the reason if it failed, behind an exclamation mark. */
static void be_child(int to, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_CODE_FAILED);
	prctl(PR_SET_NAME, "tlstax-prices");
	setpriority(PRIO_PROCESS, 0, NICE_MEASURING);
	close(STDIN_FILENO); /* who waits for their ends must not wait for this process */
	close(STDOUT_FILENO);
	FILE *file = fdopen(to, "w");
	if (!file)
		_exit(EXIT_CODE_FAILED);
	const char *why = measure(file);
	if (why)
		fprintf(file, "!%s\n", why);
	fclose(file);
	_exit(EXIT_CODE_OK);
}

/* What the child says, until it has said all, the time is over, or the other end of `line` is gone.
 */
static void hear(int from, int line, char *text)
{
	size_t used = 0;

	while (used < PRICES_BYTES - 1) {
		struct pollfd said[] = {{.fd = from, .events = POLLIN}, {.fd = line, .events = 0}};
		u64 now = monotonic_ns();
		if (now >= deadline_ns + LIMIT_NS - OWN_LIMIT_NS)
			break;
		u64 left_ns = deadline_ns + LIMIT_NS - OWN_LIMIT_NS - now;
		poll(said, COUNT(said), (int)(left_ns / NS_PER_MS) + 1);
		if (said[1].revents & (POLLHUP | POLLERR)) /* nobody wants to know any more */
			break;
		if (!(said[0].revents & (POLLIN | POLLHUP)))
			continue;
		ssize_t got = read(from, text + used, PRICES_BYTES - 1 - used);
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	while (used && text[used - 1] != '\n') /* a line that was cut */
		used--;
	text[used] = 0;
}

void prices_measure(int line, char *text, const char **why)
{
	static char said[128];
	pid_t own = getpid();
	int ends[2];

	*text = 0;
	*why = "it was killed, or took too long";
	if (pipe(ends)) {
		*why = strerror(errno);
		return;
	}
	deadline_ns = monotonic_ns() + OWN_LIMIT_NS;
	pid_t child = fork();
	if (!child) {
		close(ends[0]);
		be_child(ends[1], own);
	}
	close(ends[1]);
	if (child > 0) {
		hear(ends[0], line, text);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	close(ends[0]);
	char *reason = strchr(text, '!');
	if (!reason)
		return;
	snprintf(said, sizeof(said), "%.*s", (int)strcspn(reason + 1, "\n"), reason + 1);
	*reason = 0;
	*why = said;
}

int prices_print(void)
{
	static char text[PRICES_BYTES];
	const char *why;

	prices_measure(-1, text, &why);
	if (!*text)
		return fail(EXIT_CODE_HOST, "what a probe costs cannot be measured: %s", why);
	fputs(text, stdout);
	return 0;
}

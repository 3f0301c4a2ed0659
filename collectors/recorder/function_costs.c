// SPDX-License-Identifier: GPL-2.0-only
/*
 * Cost of a function's probes, measured with the same programs that count its calls.
 *
 * An empty function is called with and without its probes. The time that the programs report for it
 * is what they add to the time of every function (`inside`). The additional time of a call is their
 * cost for the caller (`pair`): it is included in the time of a calling function. Each figure is
 * the median of several rounds, a round being the mean of its calls.
 *
 * The rounds run in a tight loop: in a busy server the same probes cost somewhat more.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"
#include "function_probes.h"
#include "links.h"
#include "output.h"
#include "session.h"
#include "stream.h"
#include "watchdog.h"

enum { ROUNDS = 9, CALLS = 200, CODE_PAGE = 4096, KINDS = 16 };
enum exit_kind { EXIT_NONE, EXIT_INSIDE, EXIT_RETURN };

/* Code of this architecture: what the kernel emulates, and with an instruction before that it
 * single-steps. */
#ifdef __x86_64__
static const u8 emulated[] = {0x90, 0x90, 0xc3};      /* nop; nop; ret */
static const u8 stepped[] = {0x31, 0xc0, 0x90, 0xc3}; /* xor %eax,%eax; nop; ret */
#else
static const u8 emulated[1], stepped[1];
#endif

/* Places of a pair of probes in such code. */
struct places {
	bool is_stepped;
	u64 enter, leave;
	enum exit_kind exit;
};

struct empty_function {
	int fd;
	void (*call)(void);
};

static u32 kind_of(const struct plan_function *function)
{
	enum exit_kind exit = !function->has_exit   ? EXIT_NONE
			      : function->is_return ? EXIT_RETURN
						    : EXIT_INSIDE;

	return (u32)function->is_entry_stepped | (u32)exit << 1 |
	       (u32)function->is_exit_stepped << 3;
}

static struct places places_of(u32 kind)
{
	bool is_entry_stepped = kind & 1, is_exit_stepped = kind >> 3 & 1;
	struct places places = {.is_stepped = is_entry_stepped || is_exit_stepped,
				.exit = (enum exit_kind)(kind >> 1 & 3)};
	u64 end = places.is_stepped ? sizeof(stepped) : sizeof(emulated);

	places.enter = places.is_stepped && !is_entry_stepped ? 2 : 0;
	if (places.exit == EXIT_INSIDE)
		places.leave = end - (is_exit_stepped ? 1 : 2);
	return places;
}

/* Map such code from a file of its own, so that no other code of this process is probed. */
static int make_code(bool is_stepped, struct empty_function *function)
{
	u8 page[CODE_PAGE];

	memset(page, 0xcc, sizeof(page));
	memcpy(page, is_stepped ? stepped : emulated,
	       is_stepped ? sizeof(stepped) : sizeof(emulated));
	function->fd = memfd_create("tlstax-calibration", MFD_CLOEXEC);
	if (function->fd < 0 || write(function->fd, page, sizeof(page)) != sizeof(page))
		return -1;
	void *code = mmap(NULL, CODE_PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, function->fd, 0);
	if (code == MAP_FAILED)
		return -1;
	memcpy(&function->call, &code, sizeof(code));
	return 0;
}

static void drop_code(struct empty_function *function)
{
	void *code;

	memcpy(&code, &function->call, sizeof(code));
	munmap(code, CODE_PAGE);
	close(function->fd);
}

static double round_ns(const struct empty_function *function)
{
	u64 start_ns = monotonic_ns();

	for (int i = 0; i < CALLS; i++)
		function->call();
	u64 end_ns = monotonic_ns();
	watchdog_beat();
	return (double)(end_ns - start_ns) / CALLS;
}

/* Of an odd number of values; none: 0. */
static double median(double *values, u32 count)
{
	for (u32 i = 1; i < count; i++)
		for (u32 k = i; k && values[k - 1] > values[k]; k--) {
			double larger = values[k - 1];
			values[k - 1] = values[k];
			values[k] = larger;
		}
	return count ? values[count / 2] : 0;
}

static int attach(const struct function_probes *probes, bool has_multi, const struct places *places,
		  int fd)
{
	u64 timed = places->exit != EXIT_NONE;
	u64 enter = CALIBRATION | timed << 12;
	u64 leave = enter | (places->exit == EXIT_INSIDE ? 1ULL << 32 : 0);
	char path[32];
	int error = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (timed)
		error = function_attach(probes, has_multi, path, &places->leave, &leave, 1,
					getpid(), true, places->exit == EXIT_RETURN);
	if (error >= 0)
		error = function_attach(probes, has_multi, path, &places->enter, &enter, 1,
					getpid(), false, false);
	return error < 0 ? fail(EXIT_CODE_HOST, "cannot measure what probes of functions cost: %s",
				strerror(-error))
			 : 0;
}

static int measure(const struct function_probes *probes, bool has_multi, u32 kind,
		   struct function_cost *cost)
{
	double bare[ROUNDS], pair[ROUNDS], inside[ROUNDS];
	struct places places = places_of(kind);
	struct empty_function function;
	u32 timed_rounds = 0;
	u64 count, ns, count_before, ns_before;

	if (make_code(places.is_stepped, &function))
		return fail(EXIT_CODE_HOST,
			    "cannot map code to measure what probes of functions cost: %s",
			    strerror(errno));
	round_ns(&function);
	for (u32 i = 0; i < ROUNDS; i++)
		bare[i] = round_ns(&function);
	double bare_ns = median(bare, ROUNDS);
	int error = function_switch_attach(probes);
	if (!error)
		error = attach(probes, has_multi, &places, function.fd);
	for (u32 i = 0; i < ROUNDS && !error; i++) {
		function_times_of(probes, CALIBRATION, &count_before, &ns_before);
		pair[i] = round_ns(&function) - bare_ns;
		function_times_of(probes, CALIBRATION, &count, &ns);
		if (count > count_before)
			inside[timed_rounds++] =
				(double)(ns - ns_before) / (double)(count - count_before);
	}
	links_close_group(LINKS_FUNCTIONS);
	drop_code(&function);
	if (error)
		return -1;
	double pair_ns = median(pair, ROUNDS);
	cost->pair_ns = pair_ns > 0 ? (u32)(pair_ns + 0.5) : 0;
	cost->inside_ns = (u32)(median(inside, timed_rounds) + 0.5);
	return 0;
}

int function_costs_measure(const struct function_probes *probes, bool has_multi,
			   const struct plan *plan)
{
	static struct function_cost of_kind[KINDS];
	static bool is_known[KINDS];

#ifndef __x86_64__
	return fail(EXIT_CODE_HOST, "functions cannot be counted on this architecture yet");
#endif
	for (u32 i = 0; i < plan->functions_count; i++) {
		u32 kind = kind_of(&plan->functions[i]);
		if (!is_known[kind] && measure(probes, has_multi, kind, &of_kind[kind]))
			return -1;
		is_known[kind] = true;
		session->functions.costs[i] = of_kind[kind];
	}
	int fd = bpf_map__fd(object_data_map(probes->object, ".data.costs"));
	if (bpf_map_update_elem(fd, &(u32){0}, session->functions.costs, 0))
		return engine_refused("cannot set up the programs for functions", errno);
	return 0;
}

bool function_costs_put(const struct plan *plan)
{
	for (u32 i = 0; i < plan->functions_count; i++) {
		struct stream_function *frame = output_put(STREAM_FUNCTION, sizeof(*frame));
		if (!frame)
			return false;
		*frame = (struct stream_function){i, session->functions.costs[i].pair_ns,
						  session->functions.costs[i].inside_ns};
	}
	return true;
}

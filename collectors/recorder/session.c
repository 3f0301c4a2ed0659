// SPDX-License-Identifier: GPL-2.0-only
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "failure.h"
#include "output.h"
#include "watchdog.h"

struct session *session;

static struct session *sessions[STREAM_TARGETS_MOST];
static u32 count;
static u64 turned_ns;  /* CPU time of this thread when the present turn began */
static u64 charged_ns; /* of other threads, for targets */
static u64 shared_ns;  /* for none of them: what some target had already */

int session_add(void)
{
	if (count == STREAM_TARGETS_MOST)
		return fail(EXIT_CODE_USAGE, "one recorder records %d processes at most",
			    STREAM_TARGETS_MOST);
	/* Most of it is never touched. */
	struct session *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (made == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "no memory for a process: %s", strerror(errno));
	made->number = count;
	made->meter.statistics_fd = made->quota.netstat_fd = -1;
	made->schedule.stretch.cost_ns = -1;
	made->windows.wait_share = 1;
	sessions[count++] = made;
	session_turn(made->number);
	return 0;
}

struct session *session_of(u32 number)
{
	return sessions[number];
}

u32 sessions_count(void)
{
	return count;
}

size_t sessions_end_bytes(void)
{
	return count * (sizeof(struct stream_error) + sizeof(struct stream_end) +
			4 * sizeof(struct stream_head));
}

void session_turn(u32 number)
{
	u64 now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	if (session) { /* all before the first turn is the first one's */
		session->cpu_ns += now_ns - turned_ns;
		turned_ns = now_ns;
	}
	session = sessions[number];
	output_turn((u16)number);
	budget_set_floor(session->options.floor_cpus);
}

void session_charge(u32 number, u64 cpu_ns)
{
	sessions[number]->cpu_ns += cpu_ns;
	charged_ns += cpu_ns;
}

/* The first one that is not over has what is for none of them. */
static bool pays_shared(void)
{
	for (u32 i = 0; i < count; i++)
		if (sessions[i]->progress < PROGRESS_OVER)
			return sessions[i] == session;
	return !session->number;
}

u64 session_cpu_ns(void)
{
	u64 now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	if (pays_shared()) {
		u64 all_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - now_ns + watchdog_cpu_ns() -
			     charged_ns;
		session->cpu_ns += all_ns - shared_ns;
		shared_ns = all_ns;
	}
	return session->cpu_ns + now_ns - turned_ns;
}

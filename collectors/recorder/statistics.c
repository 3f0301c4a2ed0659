// SPDX-License-Identifier: GPL-2.0-only
/* When the kernel times the programs: that costs the server a part of what they do. */
#include <bpf/bpf.h>
#include <unistd.h>

#include "metering.h"
#include "session.h"

#define meter (session->meter)

enum { TIMED_EVERY = 31 };

void statistics_turn(bool on)
{
	if (on && meter.statistics_fd < 0) {
		meter.statistics_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
		meter.timed_since_ns = monotonic_ns();
	}
	if (!on && meter.statistics_fd >= 0) {
		close(meter.statistics_fd);
		meter.statistics_fd = -1;
		meter.timed_ns += monotonic_ns() - meter.timed_since_ns;
	}
}

bool statistics_are_on(void)
{
	return meter.statistics_fd >= 0;
}

void statistics_at(int level)
{
	bool is_known =
		meter.body_runs[0] >= BODY_RUNS_MOST && meter.body_runs[1] >= BODY_RUNS_MOST;

	statistics_turn(has_ledger(level) || (level >= LEVEL_SIGNATURE && !is_known));
}

void statistics_saw(const struct reading *from, const struct reading *to, u64 number)
{
	u64 cpu_ns = to->target_cpu_ns - from->target_cpu_ns, span_ns = to->time_ns - from->time_ns;

	if (number % TIMED_EVERY == 0)
		meter.saw_load = false;
	else if (statistics_are_on() && (double)cpu_ns >= FLOOR_CPUS * (double)span_ns)
		meter.saw_load = true;
}

void statistics_sparingly(void)
{
	statistics_turn(!meter.saw_load);
}

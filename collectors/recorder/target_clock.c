// SPDX-License-Identifier: GPL-2.0-only
#include "target_clock.h"

enum { THREADS_MANY = 256 }; /* with fewer the clock is cheap, and knows the stays that go on */

/* `with_running`: with the stays that went on when the kernel's counts were read last. */
static u64 stays_ns(const struct engine *engine, bool with_running)
{
	u64 sum_ns = 0;

	for (u32 cpu = 0; cpu < engine->cpus_count; cpu++) {
		sum_ns += engine->cpus[cpu].target_cpu_ns;
		if (with_running)
			sum_ns += engine->cpus[cpu].running_ns;
	}
	return sum_ns;
}

u64 target_clock_read(struct target_clock *clock, const struct engine *engine, bool goes_on)
{
	u64 now_ns = clock->is_based && goes_on
			     ? clock->base_ns + stays_ns(engine, false) - clock->stays_ns
			     : clock_ns(clock->clock);

	if (!now_ns || (s64)(now_ns - clock->told_ns) > 0)
		clock->told_ns = now_ns;
	return clock->told_ns;
}

void target_clock_base(struct target_clock *clock, const struct engine *engine, u64 cpu_ns,
		       u64 threads_count)
{
	clock->is_based = threads_count >= THREADS_MANY;
	clock->base_ns = cpu_ns;
	if ((s64)(cpu_ns - clock->told_ns) > 0)
		clock->told_ns = cpu_ns;
	clock->stays_ns = stays_ns(engine, true);
}

void target_clock_stop(struct target_clock *clock)
{
	clock->is_based = false;
}

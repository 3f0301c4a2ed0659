// SPDX-License-Identifier: GPL-2.0-only
#include "suspend.h"

#include "heartbeat.h"

#define APART_NS NS_PER_MS

u64 boottime_ahead_ns(void)
{
	for (;;) {
		u64 before = monotonic_ns(), running = clock_ns(CLOCK_BOOTTIME);
		if (monotonic_ns() - before < APART_NS)
			return running - before;
	}
}

u64 suspended_ns(void)
{
	static u64 first, last;
	u64 now = boottime_ahead_ns();

	if (!first)
		first = last = now;
	if (now > last + SUSPEND_LEAST_NS)
		last = now;
	return last - first;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs and the recorder's watchdog share: when the recorder was last at work. */
#ifndef TLSTAX_HEARTBEAT_H
#define TLSTAX_HEARTBEAT_H

/* The programs return at once when their recorder did not run for this long. */
#define HEARTBEAT_MOST_NS 2000000000LL
/* The clocks are not read at one instant; what devices take to follow a suspend and a resume. */
#define SUSPEND_LEAST_NS 10000000LL
#define SUSPEND_MOST_NS 30000000000LL

struct heartbeat {
	u64 time_ns;  /* when the recorder was last at work; 0: not told */
	u64 ahead_ns; /* CLOCK_BOOTTIME less CLOCK_MONOTONIC then: it counts suspended time, too */
	u64 resumed_ns; /* when the programs were idle last: what was open before is not known */
};

#endif

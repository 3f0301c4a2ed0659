/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Suspends of the host. CLOCK_MONOTONIC stands still then: no other time of a recording has them.
 * Before and after, while devices follow, all processes are frozen: nobody beats for seconds.
 */
#ifndef TLSTAX_SUSPEND_H
#define TLSTAX_SUSPEND_H

#include "types.h"

/* CLOCK_BOOTTIME, which goes on, less CLOCK_MONOTONIC; up to 1 ms more. */
u64 boottime_ahead_ns(void);

/* How long the host was suspended since this process asked first. */
u64 suspended_ns(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The target's CPU time, for the budget and for what recording costs.
 *
 * The kernel sums its clock over the threads, 0.1 to 0.2 us each: with a thousand of them that was
 * the dearest part of a window. While the ledger is on, the programs sum what each stay on a CPU
 * took. So from a reading of the kernel's counts on, which tells the clock and the stays that have
 * not ended, their sums go on from there. They lack the stays that have not ended since. Closure
 * has nothing of this: it compares the ledger with the clock itself (read_counts() in window.c).
 */
#ifndef TLSTAX_TARGET_CLOCK_H
#define TLSTAX_TARGET_CLOCK_H

#include "engine.h"

struct target_clock {
	clockid_t clock;
	bool is_based; /* the kernel's counts were read, and the ledger was on since */
	u64 base_ns;   /* what the clock was then */
	u64 stays_ns;  /* and what the programs' sums were, with the stays that went on */
	u64 told_ns;   /* the last answer: none is less */
};

/* CPU time now. `goes_on`: the ledger is on. 0: the target has ended. */
u64 target_clock_read(struct target_clock *clock, const struct engine *engine, bool goes_on);

/* The kernel's counts were just read, with that CPU time, of so many threads. */
void target_clock_base(struct target_clock *clock, const struct engine *engine, u64 cpu_ns,
		       u64 threads_count);

/* The ledger is off. */
void target_clock_stop(struct target_clock *clock);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Windows: the totals of the programs at an instant. */
#ifndef TLSTAX_WINDOW_H
#define TLSTAX_WINDOW_H

#include "budget.h"
#include "engine.h"

enum { PARTS = 3 }; /* of a command: reading, executing, answering */
enum { LOSSES_OF_TURNING = 4 };

struct windows {
	u64 number;	  /* of the next window */
	u64 merged_count; /* windows that were not cut because the stream was full */
	bool is_full;	  /* the last window had no room */
	u64 last_end_ns;
	struct process_counts counts; /* as they were read last */
	u64 first_counts_ns;	      /* when the window ended that had the first since the level */
	u64 counts_ns;		      /* and that which has these */
	bool has_unsent_counts;	      /* they were read for a window that had no room */
	u64 counts_cost_ns;	      /* CPU time of reading them */
	u64 resident_bytes;	      /* then */
	u32 wait_share;
	u64 starved_count; /* lapses, see schedule_lapse() */
	double walks_most; /* a second */
	u64 before_turning[LOSSES_OF_TURNING], left_out[LOSSES_OF_TURNING];
};

/* The end of a window. */
struct window_end {
	u64 ns;		   /* now or just over */
	int level;	   /* what was on in it */
	bool restarts;	   /* the ledger was off and begins again here */
	bool is_outer;	   /* somebody may compare what is before it with what is behind it */
	u64 target_cpu_ns; /* CPU clock of the target, 0: not read, or it is gone */
	struct span span;  /* what it cost */
	const u64 *parts;  /* of a calibration stretch: PARTS times; NULL: it is none */
};

/*
 * End a window; false: the stream has no room, and it goes on. The first one is not a window: it
 * holds the totals at which the recording begins.
 */
bool window_cut(struct windows *windows, struct engine *engine, const struct target *target,
		const struct window_end *end);

/* Walks of waits in a second beyond which fewer waits are walked. */
void window_set_walks(struct engine *engine, double most, bool is_server);

/*
 * Probes are about to be attached or detached, or were: exits without entries meanwhile are no
 * losses.
 */
void window_turning(const struct engine *engine);
void window_turned(const struct engine *engine);

#define DRAIN_NS (250 * NS_PER_MS)

/*
 * Between two windows: handshakes and ended threads are taken out if they use much of their room,
 * so that there is room for more. What is little waits for the end of the window: each time, the
 * writer and the reader of the stream wake up, too. When to look again.
 */
u64 window_drain(struct engine *engine);

/* How long after a window's end to look first: by what has gathered since the look before it. */
u64 window_pause_ns(const struct engine *engine);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the schedule share. */
#ifndef TLSTAX_SCHEDULE_STEPS_H
#define TLSTAX_SCHEDULE_STEPS_H

#include "metering.h"
#include "pace.h"
#include "schedule.h"

extern struct schedule {
	const struct options *options;
	struct windows *windows;
	struct engine *engine;
	const struct plan *plan;
	const struct target *target;
	double budget; /* 0: none */
	int most, level;
	bool is_trial;
	struct level_choice chosen; /* base_ns 0: it was given */
	struct pace pace;
	u64 next_ns, look_ns, drain_ns, watch_ns;
	u64 asked_ns;		/* when the present window was asked to end; 0: nobody asked */
	u64 last_end_ns;	/* when the last window ended */
	u64 reader_ns;		/* at the end of the last window */
	double cut_ns, turn_ns; /* CPU time, below 0: nothing was attached or detached */
	/* What the probes of stretches cost since `sent`, `settled` and `watched`. */
	double sent_more_ns, settled_more_ns, watched_more_ns;
} state;

/* The end of the last window that was sent, of the last that was accounted for, when the present
 * step was looked at, and when it began. */
extern struct reading sent, settled, watched, now;

/* Read the counters into `now`, or into `watched`. */
void read_now(void);
void read_watched(void);

/* The overhead since the windows were settled last. */
void settle(struct span *span);

/* End a window at `now`; false: there is no room. */
bool cut(int level, bool restarts);

/* Attach and detach what a level needs. */
int turn(int level);

/* The window goes on as it is. */
int stay(void);

/* Go on to the level of a step. */
int follow(struct step step, bool is_cut);

/* The trial is over: choose by what it cost. */
int judge(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is on when, what it costs, and when a window ends.
 *
 * Without a budget one level is on all the time. With one, a trial at the full level comes first,
 * and then the windows that pace.h asks for.
 */
#ifndef TLSTAX_SCHEDULE_H
#define TLSTAX_SCHEDULE_H

#include "levels.h"
#include "metering.h"
#include "options.h"
#include "pace.h"
#include "price_stretches.h"
#include "window.h"

struct schedule {
	const struct options *options;
	struct windows *windows;
	struct engine *engine;
	const struct plan *plan;
	const struct target *target;
	double budget; /* 0: none */
	int most, level;
	bool is_trial, is_second;   /* of two trials */
	bool is_measured;	    /* the trial */
	struct span first, trial;   /* what the first of two cost, and the whole trial */
	struct load load;	    /* by the whole trial */
	struct level_choice chosen; /* base_ns 0: it was given */
	struct pace pace;
	u64 next_ns, look_ns, drain_ns, watch_ns;
	u64 asked_ns;		/* when the present window was asked to end; 0: nobody asked */
	u64 last_end_ns;	/* when the last window ended */
	u64 reader_ns;		/* at the end of the last window */
	u64 looked_reader_ns;	/* and when that had been read; 0: not yet */
	double cut_ns, turn_ns; /* CPU time, below 0: nothing was attached or detached */
	/* What the probes of stretches cost since `sent`, `settled` and `watched`. */
	double sent_more_ns, settled_more_ns, watched_more_ns;
	/* What the present window cost at a level that it left: see carry_cost(). */
	struct overhead carried;
	/* The end of the last window that was sent, of the last that was accounted for, when the
	 * present step was looked at, and when it began. */
	struct reading sent, settled, watched, now;
	int lapsed_level;  /* what is on again after a lapse */
	u64 again_ns;	   /* when it is tried to attach whatever room there is */
	bool rose_in_vain; /* the last time: what was attached had no room to begin */
	bool is_lapsed;	   /* everything is detached: see schedule_lapse() */
	bool is_read;	   /* the last window was */
	struct price_stretches price;
	/* The calibration stretch that is under way. */
	struct {
		bool is_on, begins; /* with the window that is ended next */
		u64 end_ns;
		double spent_ns, allowed_ns; /* what it cost so far, and may cost */
		double attach_ns;	     /* CPU time of the recorder */
		double cost_ns;		     /* of the last whole one; below 0: there was none */
	} stretch;
};

/* Why the level is what it is; for the frame of the budget. */
void schedule_note_level(const struct level_choice *choice);

/* Attached: the first window begins. False: the queue has no room for its totals. */
bool schedule_begin(const struct options *options, struct windows *windows, struct engine *engine,
		    const struct plan *plan, const struct target *target);

/* Whether the ledger is on all the time, and not in windows that are apart. */
bool schedule_goes_on(void);

/* When schedule_step() has something to do. */
u64 schedule_wake_ns(void);

/* The present window ends at this time, or now if that is to come; one that ended since is enough.
 */
void schedule_end_window(u64 ns);

/* Do what is due. -1: it cannot go on. */
int schedule_step(void);

/* The programs were idle, as the recorder got no CPU. Detach all; -1: it cannot. */
int schedule_lapse(void);

/* Attach it again, and end the window of the lapse, which has no ledger; -1: it cannot. */
int schedule_resume(void);

/* Read the totals of the last window; false: there is no room yet, call it again. */
bool schedule_cut_last(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When to record densely: a budget, used window by window.
 *
 * Decisions only: the schedule passes the length and overhead of each window and asks for the next
 * step. A dense window starts when the account covers it. The length of the light time before it
 * varies by a fifth, so that dense windows do not keep step with periodic work in the target. A
 * window that costs more than allowed is ended early, whatever was expected. So the budget holds
 * for any load, whatever the trial measured.
 */
#ifndef TLSTAX_PACE_H
#define TLSTAX_PACE_H

#include "budget.h"

#define TRIAL_NS (200 * NS_PER_MS)

/* What the recorder does next. */
struct step {
	int level;
	u64 length_ns, watch_ns; /* and how often to look whether it overspends */
};

struct pace {
	int most;
	u64 window_ns;
	struct account account;
	struct load load;
	struct choice choice;
	struct step step;
	struct { /* the window before, which is read meanwhile */
		int level;
		u64 length_ns, cpu_ns;
	} read;
	bool knows_reading;  /* of windows without a ledger, not by a guess */
	bool has_choice;     /* else the load has changed: nothing is on until something fits */
	double allowance_ns; /* of the present window, below 0: it has none of its own */
	u32 rests;	     /* light windows since the last dense one */
	u64 random;
};

/* What a window cost the recorder itself; below 0: not known. */
struct own_costs {
	double cut_ns, turn_ns;
	double read_ns; /* of who reads windows: for the one before */
	double watch;	/* per time */
};

void pace_open(struct pace *pace, double share, int most, u64 window_ns, u64 seed);

/* Choose by the trial, whose overhead is the first debt; false: nothing fits. */
bool pace_begin(struct pace *pace, const struct load *load, const struct span *trial);

/* What follows the trial. */
struct step pace_first(struct pace *pace);

/* Account for a window that ended; the next step. */
struct step pace_ended(struct pace *pace, const struct span *span, const struct own_costs *own);

/* Whether everything is on and the account holds what something more would cost; below 0: that is
 * not known, and a second of the budget has to be there. */
bool pace_affords(const struct pace *pace, double cost_ns);

/* Whether the present window must end now, by its overhead so far. */
bool pace_overspends(const struct pace *pace, const struct span *span);

#endif

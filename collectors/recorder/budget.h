/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How much can be probed within a share of the target's CPU time: costs, choice, account.
 *
 * The overhead is counted, not estimated: hits of each probe times their price, the run time of the
 * programs at scheduler events and samples, and the CPU time of the recorder. A short trial at the
 * full level measures the rates; from them budget_choose() takes the most detailed recording that
 * fits:
 *
 * - everything, all the time, in windows as short as the price of cutting them allows;
 * - else dense windows, in which everything is on, with light time between them, in which only
 *   rare probes and the sampler are on, or the sampler alone;
 * - else a lower level all the time; and when not even samples fit, nothing.
 *
 * Rates are kept per nanosecond of the target's CPU time, so that they hold when the load changes.
 * All of this is arithmetic: nothing here reads a clock or attaches a probe.
 */
#ifndef TLSTAX_BUDGET_H
#define TLSTAX_BUDGET_H

#include "plan.h"

enum { LEVEL_NONE = -1 }; /* nothing is on, no samples either */

/* Windows are as long as that, or as asked for if that is longer. */
#define LONGEST_WINDOW_NS (10 * NS_PER_S)

#define FLOOR_CPUS 0.1 /* a target that uses less is counted as using this: a share of 0 is 0 */
#define FLOOR_CPUS_LEAST 0.001
#define FLOOR_CPUS_MOST 16

/* Overhead of measuring: CPU time in ns, by cause. */
struct overhead {
	double probes_ns, scheduler_ns, samples_ns, recorder_ns;
	double neighbours_ns; /* of the scheduler's programs at events of other processes */
};

/* Overhead of a span of time. */
struct span {
	u64 length_ns, target_cpu_ns;
	struct overhead spent;
	double by_level_ns[LEVELS]; /* of the probes of each level */
};

/* The target's load and the overhead of measuring: from the trial, then from every window. */
struct load {
	double cpus;		 /* CPU time of the target per time */
	double probes[LEVELS];	 /* of the probes of each level, per CPU time of the target */
	double known_ns[LEVELS]; /* how long each level was on in the windows that tell it */
	double scheduler;  /* of the programs at scheduler events, per CPU time of the target */
	double neighbours; /* of the same at events of other processes, per time */
	double samples;	   /* of the sampler, per time */
	double cut_ns;	   /* CPU time of the recorder to end a window */
	double read_ns;	   /* and of who reads it, if it has a ledger */
	double reading;	   /* of who reads handshakes without one, per CPU time of the target */
	double turn_ns;	   /* and to attach and detach what only dense windows have */
	double tail_ns;	   /* how much longer than its window a dense window's probes stay on */
	double watch;	   /* CPU time of the recorder between two windows, per time */
	u32 dense_count;   /* dense windows so far, without the trial */
};

/* How to record. */
struct choice {
	int dense;    /* the level of a dense window, or of all the time */
	int light;    /* between dense windows */
	u64 dense_ns; /* length of a dense window, or of any if everything is always on */
	u64 cycle_ns; /* from one dense window to the next; dense_ns: no light time */
	struct overhead predicted; /* of a second */
};

/* What the account holds: the budget's share of the target's CPU time, less the overhead. */
struct account {
	double share, balance_ns;
};

static inline bool is_continuous(const struct choice *choice)
{
	return choice->cycle_ns <= choice->dense_ns;
}

/* Below level flow a command cannot be told from waiting for one, so there is no ledger. */
static inline bool has_ledger(int level)
{
	return level >= LEVEL_FLOW;
}

/* With a ledger each window takes about as long to read; else what it has of handshakes does. */
static inline bool is_read_by_time(int level)
{
	return level >= LEVEL_SIGNATURE && !has_ledger(level);
}

double overhead_total(const struct overhead *overhead);

/* CPUs that a target is counted as using if it uses less: FLOOR_CPUS until this is called. */
void budget_set_floor(double cpus);

double budget_floor(void);

/* CPUs that the budget is a share of. */
double load_base(const struct load *load);

/* Overhead of a second with everything up to a level on. */
struct overhead load_running(const struct load *load, int level);

/* What a dense window costs, however short: two cuts, reading it, attaching, detaching. */
double window_fixed(const struct load *load, int dense);

/* Overhead that a dense window adds to light time: its events, two cuts, attaching, detaching. */
double window_cost(const struct load *load, int dense, int light, u64 dense_ns);

/*
 * The most detailed recording for a share of the target's CPU time; false: nothing fits. A
 * recording that alternates goes on to until everything fits with a margin.
 */
bool budget_choose(const struct load *load, double share, int most, u64 window_ns, bool alternates,
		   struct choice *choice);

/*
 * Whether a lightly loaded target whose handshakes are recorded between dense windows keeps them,
 * where a new choice would not: their cost varies by a tenth from window to window, and a choice
 * leaves more than that unused. They may use all that there is; dense windows then wait for credit.
 */
bool budget_keeps(const struct load *load, double share, const struct choice *before,
		  struct choice *choice);

/* Everything all the time, whatever it costs. */
struct choice budget_everything(const struct load *load, int most, u64 window_ns);

/* Whether a trial has used up what the budget earns in a second. */
bool trial_overspends(const struct span *span, double share);

/* Whether a trial of a lightly loaded target says that not even handshakes can be recorded all the
 * time. One interrupt in a program, or a pause of a virtual machine, says so, too. */
bool trial_is_doubtful(const struct load *load, double share, int most, u64 window_ns);

/* Two trials in a row: rates are the lesser of both, as what disturbs only adds to them. */
void trials_join(struct load *load, const struct load *other);
void spans_join(struct span *span, const struct span *other);

/* Say why nothing fits, and the budget that suffices. */
void budget_refuse(const struct load *load, double share);

void account_settle(struct account *account, const struct span *span);

/*
 * Update the load by a span at a level. What was not on, and all rates if the target was idle, stay
 * as they were; the others are averaged, because a short window is a small sample: of CPUs and
 * connections the more so the shorter it is. A window counts at least as much as its part of all
 * the time that was seen: the trial is shorter than what follows it.
 */
void load_learn(struct load *load, int level, const struct span *span, double weight);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Overhead during a recording: hits, run times and clocks, converted to CPU time.
 *
 * A probe hit costs its trap, as calibrated for the plan and multiplied for a server, and its
 * program, timed by the kernel in the target. The cost of scheduler events and samples is the run
 * time of their programs, which the kernel counts only while its statistics are on, and what a call
 * of a program costs beyond it (call_price.h); in between the last rates, per CPU time of the
 * target, remain in use. Where it was measured what all of this costs in the target
 * (whole_price.h), it is multiplied to be that. The recorder's own cost is the CPU time of its
 * processes, and of the one that reads the stream on this host.
 */
#ifndef TLSTAX_METERING_H
#define TLSTAX_METERING_H

#include "budget.h"
#include "engine.h"
#include "hit_price.h"
#include "target_clock.h"
#include "whole_price.h"

#define BODY_RUNS_MOST 2000.0 /* later ones count as much as so many, so that it follows */

/* The same of a program that returns at once: 64 to 81 ns on a saturated host, 61 in a loop. */
#define IDLE_IN_SITU 1.2

/* The counters at an instant. */
struct reading {
	u64 time_ns, target_cpu_ns, own_cpu_ns;
	u64 hits[PLAN_SITES_MOST];
	u64 run_ns[PROGRAMS_MOST], run_count[PROGRAMS_MOST];
	u32 events;   /* of the target that programs ran for; goes on at 0 */
	u64 sends;    /* of the target, while the ledger is on */
	u64 timed_ns; /* how long the kernel has timed the programs */
};

/* What is known of a target's overhead. */
struct meter {
	struct target_clock target_clock;
	u8 kinds[PROGRAMS_MOST];
	int levels[PLAN_SITES_MOST];
	double body_ns[2];   /* of the programs at entries and exits, a run */
	double body_runs[2]; /* that this is the mean of, BODY_RUNS_MOST at most */
	double learned_ns[2], learned_runs[2]; /* of all runs that are in it */
	double scheduler_rate;		       /* per CPU time of the target */
	double neighbour_rate;		       /* per time */
	bool is_rate_of_load;		       /* it was measured while the target was not idle */
	double tick_ns;			       /* of a sample; those of idle CPUs run no program */
	struct hit_price hit_price;
	struct whole_price whole_price;
	double usual_in_situ; /* by what the target used in the last look that was long enough */
	bool saw_load;	      /* since the kernel timed the programs last */
	int statistics_fd;    /* -1: the kernel does not time the programs for it */
	u64 timed_since_ns, timed_ns; /* since when it does, and how long it did before */
	int reader_pid;
	u64 reader_read_ns, reader_ns; /* its clock when it was read last; this target's part */
};

void meter_prepare(const struct engine *engine, const struct plan *plan,
		   const struct target *target);

/* Count the CPU time of the process that reads the stream from now on. */
void meter_count_reader(int pid);

/* CPU time of that process since, in equal parts for the targets that have it; 0: none. */
u64 meter_reader_ns(void);

/* What a trap costs in the target, as a multiple of its price in a loop: measured, or usual. */
double meter_in_situ(void);

/* What happened between two readings, in which programs were timed. */
void meter_arm(const struct reading *before, const struct reading *after, struct price_arm *arm);

/* The counters now. `goes_on`: the target's CPU time may be the ledger's, see target_clock.h. */
void meter_read(struct reading *reading, bool goes_on);

/* Overhead between two readings, with a level on. */
void meter_span(const struct reading *before, const struct reading *after, int level,
		struct span *span);

/* The load that a trial measured at the full level. */
void meter_load(const struct span *span, struct load *load);

/* Let the kernel time the programs, or stop it. */
void statistics_turn(bool on);
bool statistics_are_on(void);

/* Those of a level: a trial of a lightly loaded target has few hits, so what follows it is timed
 * until they are many. */
void statistics_at(int level);

/*
 * Without a budget they are on in one of 31 windows, and until the target was busy in one, as what
 * timing takes is a part of what the ledger costs. With one, rates of 31 windows ago would not tell
 * that neighbours became busy. A window ends, of which so many were before; what is on in the next.
 */
void statistics_saw(const struct reading *from, const struct reading *to, u64 number);
void statistics_sparingly(void);

#endif

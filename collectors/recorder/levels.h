/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which level the ledger has, where the plan leaves that to the budget: price times rate.
 *
 * - `record` all the time, if its events leave enough of the budget to samples and the recorder;
 * - else `flow` all the time, with calibration stretches, if its own do;
 * - else `record` in dense windows: what is seen is then as detailed as it can be.
 *
 * Arithmetic: nothing here reads a clock or attaches a probe.
 */
#ifndef TLSTAX_LEVELS_H
#define TLSTAX_LEVELS_H

#include "plan.h"

/* Events a second, of the target and of all other processes, and CPUs that the target uses. */
struct rates {
	double cpus;
	double own_switches, own_receives, own_sends;
	double other_switches, other_messages;
};

struct level_choice {
	enum level level;
	double base_ns;		   /* CPU time a second that a budget is a share of */
	double flow_ns, record_ns; /* expected overhead of the ledger's events a second */
};

/* The mean price of a trap that every command crosses, or of others where none does, for a plan
 * with sites for stretches. */
double plan_trap_ns(const struct plan *plan);

/* Choose for a share of the target's CPU time; of `floor_cpus` if it uses less. */
void level_choose(const struct rates *rates, double trap_ns, double share, double floor_cpus,
		  struct level_choice *choice);

/* Make it a plan of level record: its sites are those of stretches. */
void plan_for_record(struct plan *plan);

#endif

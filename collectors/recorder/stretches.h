/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calibration stretches of a recording at level flow: a second engine at level record, attached
 * beside the first one for 200 ms now and then, tells the parts of commands by probes.
 *
 * The first one goes on: its ledger has no gap. Stretches come at random times, so that they stand
 * for all of the recording. The schedule decides whether the budget has room for one; here they are
 * attached and read. Without them all of this does nothing.
 */
#ifndef TLSTAX_STRETCHES_H
#define TLSTAX_STRETCHES_H

#include "window.h"

#define STRETCH_NS (200 * NS_PER_MS)

struct stretches {
	struct engine exact;
	struct plan exact_plan;
	u64 mean_ns, due_ns, noise; /* mean_ns 0: there are none */
	u64 before[PARTS];
	double body_ns[2]; /* of the programs at entries and exits, a run */
	/* The counters of the engine when they were read last. */
	struct {
		u64 hits[PLAN_SITES_MOST];
		u64 run_ns[PROGRAMS_MOST], run_count[PROGRAMS_MOST];
	} last;
};

/* Load its programs, before anything is attached. `mean_ns` between two stretches, 0: none. */
int stretches_load(u64 mean_ns, const struct engine *engine, const struct plan *plan,
		   const struct target *target);

/* Attach the boundaries of connections and handshakes, so that it knows the threads. */
int stretches_attach(void);

/* Attach or detach them: there are no stretches between dense windows. */
int stretches_follow(bool on);

/* When the next one is to begin. */
u64 stretch_due_ns(void);

/* Let it be due about the mean time from now, or so much later. */
void stretch_plan_next(u64 later_ns);

/* Attach what every command crosses; detach it. */
int stretch_attach(void);
int stretch_detach(void);

/* What it tells begins at a time that was just now, and ends at such a time. */
void stretch_begin(u64 now_ns);
void stretch_end(u64 now_ns, u64 parts[PARTS]);

/* What its probes and programs cost since the last call; those of the first engine not again. */
double stretches_spent_ns(void);

/* Give the accounts of ended threads back. */
void stretches_drain(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The plan's functions: the programs of functions.bpf.c, loaded, calibrated, attached and read.
 *
 * They run beside the ledger, whose maps tell them the phase of each thread. A plan without
 * functions makes all of this do nothing.
 */
#ifndef TLSTAX_FUNCTION_PROBES_H
#define TLSTAX_FUNCTION_PROBES_H

#include "engine.h"
#include "functions.h"

/* The programs and their maps. */
struct function_probes {
	struct bpf_object *object; /* NULL: the plan has no functions */
	struct bpf_program *enter, *leave;
	int sums_fd, times_fd, losses_fd;
};

enum { FUNCTION_CLASSES = 64, FUNCTION_PLACES = 1 << 16 };

/* What is counted of a target, and what of it was sent. Most of it is never touched. */
struct functions {
	struct function_probes probes;
	struct function_cost costs[MAX_FUNCTIONS];
	bool is_forgotten; /* what was sent: it is sent again */
	struct function_sum sent[MAX_FUNCTIONS][PHASES][FUNCTION_CLASSES];
	/* Of times: a table with open addressing, which is never more than half full, because the
	 * kernel's has no more keys and never drops one. */
	struct {
		struct function_bucket key;
		u64 count; /* 0: the place is free */
	} sent_times[FUNCTION_PLACES];
};

/* Load the programs, before anything is attached: that may take seconds on a busy host. */
int function_probes_load(const struct engine *engine, const struct plan *plan,
			 const struct target *target);

/*
 * Measure what the probes cost and attach them. Call it before the ledger's
 * probes are attached: of two probes at one instruction the kernel runs the later one first, and
 * the ledger should have changed the phase when the call is filed under it.
 */
int function_probes_begin(const struct engine *engine, const struct plan *plan,
			  const struct target *target);

/* Attach to the scheduler, before the probes: time off the CPU is no time of a function. */
int function_switch_attach(const struct function_probes *probes);

/* Attach all points of a plan's functions. */
int function_points_attach(const struct function_probes *probes, bool has_multi,
			   const struct plan *plan, const struct target *target);

/* Measure what the probes of each function cost a call, and pass it to the programs. */
int function_costs_measure(const struct function_probes *probes, bool has_multi,
			   const struct plan *plan);

/* Frames of that; false: no room. */
bool function_costs_put(const struct plan *plan);

/* Attach one program to some places of a file. */
int function_attach(const struct function_probes *probes, bool has_multi, const char *path,
		    const u64 *offsets, const u64 *cookies, u32 count, int pid, bool is_exit,
		    bool is_return);

/* Timed calls of a function so far, and their time. */
void function_times_of(const struct function_probes *probes, u32 function, u64 *count,
		       u64 *time_ns);

/* Frames of what changed since it was sent last; false: no room. */
bool function_sums_put(void);

/* What was put was not committed: send everything again. */
void function_sums_forget(void);

#endif

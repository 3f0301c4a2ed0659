/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The running totals of the programs, as frames: what changed since it was sent last.
 *
 * Everything that a window holds is sent as a whole or, if the stream has no room, not at all. It
 * then stays in the kernel and comes with the next window; totals_forget() sends all of it again.
 */
#ifndef TLSTAX_TOTALS_H
#define TLSTAX_TOTALS_H

#include "engine.h"
#include "stream.h"

enum { STACK_IDS_MOST = 49152 };

struct sent_account;

/* The accounts of a target's threads, as far as they were sent. */
struct accounts {
	struct sent_account *sent; /* of each slot; pages of unused ones are not touched */
	u32 window, slots_count, ended_count; /* of windows: those that were committed */
	u64 looked_count;   /* of the engine's ended accounts, when they were all sent */
	u32 counted_phases; /* bits: their instances changed since latencies were sent */
	u64 torn_count;	    /* copies that charges interrupted each time */
};

/* Its counters, as they were sent. */
struct counters {
	u64 latency[PHASES][LATENCY_BUCKETS];
	struct stream_hits hits[MAX_SITES];
	struct stream_cpu cpus[CPUS_MOST];
	u64 missed_count;
	struct {
		u64 run_ns, run_count, missed_count;
		bool is_loaded;
	} programs[PROGRAMS_MOST]; /* as they were read last */
	/* What was counted before the recording: no part of it. */
	struct stream_hits hits_before[MAX_SITES];
	struct {
		u64 ns, count;
	} runs_before[PROGRAMS_MOST];
};

/* Functions that tell roles, as they are mapped. */
struct roles {
	struct role_span {
		u64 start, end;
	} spans[PLAN_SPANS_MOST];
	u32 spans_count;
	u64 lowest, highest;
	char memory_path[32];
};

int totals_prepare(struct engine *engine, const struct plan *plan, const struct target *target);

/* Threads that ended since all accounts of such were sent. */
u64 accounts_ended_count(const struct engine *engine);

/* Frames of accounts; with `ended_only` of threads that have ended. false: no room. */
bool accounts_put(struct engine *engine, bool ended_only);

/* A copy of an account that no charge interrupted. false: one did, at each attempt. */
bool account_copy(const struct thread_slot *slot, struct thread_slot *copy);

/* Give the slot of a thread that has ended back. */
void account_recycle(struct engine *engine, u32 index);

/* Give those of all threads that have ended back; nobody wants to know what is in them. */
void accounts_recycle_unsent(struct engine *engine);

/* Give the slots of ended threads back, after what accounts_put() put was committed; how many. */
u32 accounts_recycle(struct engine *engine);

/* Ask the kernel how often its programs ran, for how long, and how often it left one out. */
void programs_read(const struct engine *engine);

/* What was hit and ran up to here is of no recording. */
void counters_begin(const struct engine *engine);

/*
 * Latencies, hits, programs as they were read last and, if they were read, the kernel's counts of
 * CPUs. Latencies only of phases that an account shows to have changed, or all.
 */
bool counters_put(struct engine *engine, bool has_counts, bool is_all);

/* What was put was not committed: send everything again. */
void accounts_forget(void);
void counters_forget(void);

/* Handshakes that ended. They are committed at once; false: what has no room stays in the ring. */
bool handshakes_drain(struct engine *engine, bool discard);

/* Samples and waits as far as there is room; `walked` is the number of waits. */
void samples_drain(struct engine *engine, u64 *walked, bool discard);

/* Runs that the kernel left out, of all programs; with counters_put(). */
u64 missed_runs(void);

/* The role that a thread's stack shows: 1 + number of the span, 0: none. */
int roles_prepare(const struct plan *plan, const struct target *target);
u32 role_span(u64 stack_base);

/*
 * Names of the kernel's functions for the addresses that were sent; after detaching. `last`: the
 * last address that is done, 0 at first. False: no room, call it again.
 */
void kernel_address_add(u64 address);
bool kernel_names_put(u64 *last);

#endif

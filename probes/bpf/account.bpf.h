/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps, counters and the one function that charges time. */
#ifndef TLSTAX_ACCOUNT_BPF_H
#define TLSTAX_ACCOUNT_BPF_H

#include "ktypes.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "buckets.bpf.h"
#include "compat.h"
#include "faults.bpf.h"
#include "heartbeat.bpf.h"
#include "ledger.h"
#include "slots.bpf.h"

#define TASK_EXITING 0x00000004	  /* PF_EXITING, unchanged since 2.6 */
#define TASK_IO_WORKER 0x00000010 /* PF_IO_WORKER, since 5.12 */
#define TASK_DEAD 0x80		  /* state of the last switch, unchanged since 4.14 */
#define TASK_NEW 0x800		  /* state before it is first runnable, unchanged since 4.14 */

const volatile struct config config SEC(".rodata.config") = {};
struct control control SEC(".data.control") = {};
struct lifecycle lifecycle SEC(".data.lifecycle") = {};

/* Whether a task belongs to the target, and the target still runs the planned program. */
static __always_inline bool is_target(struct task_struct *task)
{
	return task->tgid == config.tgid && !lifecycle.executed_ns;
}

/* A thread of io_uring's: its registers are those of the call that made it. */
static __always_inline bool is_io_worker(struct task_struct *task)
{
	return task->flags & TASK_IO_WORKER;
}

/* A shard for each CPU, so that CPUs do not wait for each other's counters: config.shards of them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct latency_shard);
} latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct site_hits);
} hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* The loader sets the number of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_counts);
} cpus SEC(".maps");

static __always_inline struct cpu_counts *find_cpu(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* An event is the target's: what it costs is told apart from that of other processes' events. */
static __always_inline void count_event(struct cpu_counts *cpu)
{
	if (cpu)
		cpu->event_count++;
}

/*
 * Global functions like this one are verified on their own, and not again on each path that leads
 * to a call of them. What seldom runs, the bodies of loops, and what is called from many places are
 * such functions: with everything inlined, loading took half a second.
 */
__noinline int count_loss(u32 kind)
{
	u64 *count = bpf_map_lookup_elem(&losses, &kind);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* The shard of this CPU. One that came online later shares that of another. */
static __always_inline u32 this_shard(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	return cpu < config.shards ? cpu : cpu % config.shards;
}

static __always_inline void count_hit(u64 cookie)
{
	u32 shard = this_shard();
	struct site_hits *value = bpf_map_lookup_elem(&hits, &shard);
	if (value)
		__sync_fetch_and_add(&value->count[COOKIE_SITE(cookie)], 1);
}

/* The operations that tell how much was done: hit_price.h of the recorder. */
static __always_inline void count_send(void)
{
	u32 shard = this_shard();
	struct site_hits *value = bpf_map_lookup_elem(&hits, &shard);
	if (value)
		__sync_fetch_and_add(&value->sends, 1);
}

static __always_inline void count_begun(u64 cookie)
{
	u32 shard = this_shard();
	struct site_hits *value = bpf_map_lookup_elem(&hits, &shard);
	if (value)
		__sync_fetch_and_add(&value->begun[COOKIE_SITE(cookie)], 1);
}

static __always_inline void count_healed(struct frame *frame)
{
	u32 shard = this_shard();
	struct site_hits *value = bpf_map_lookup_elem(&hits, &shard);
	if (value && frame->phase != PHASE_HANDSHAKE)
		__sync_fetch_and_add(&value->healed[frame->site & (MAX_SITES - 1)], 1);
}

/* The phase that owns the thread's time while it is not waiting for a command. */
static __always_inline u32 innermost_phase(struct thread_slot *slot)
{
	u32 depth = slot->depth;
	if (depth == 0 || depth > MAX_FRAMES)
		return slot->base;
	return slot->frames[(depth - 1) & (MAX_FRAMES - 1)].phase;
}

/* The thread's states are not recorded: only the times of handshake operations are known. */
__noinline int charge_paused(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	u64 spent = now - slot->last_ns;
	u32 owner = slot->owner;
	slot->last_ns = now;
	if (!slot->handshake.active || (s64)spent <= 0)
		return 0;
	slot->handshake.unfollowed = 1;
	if (owner >= PHASE_HANDSHAKE && owner <= PHASE_CERTIFICATE)
		slot->handshake.phase_ns[(owner - PHASE_HANDSHAKE) & 7] += spent;
	return 0;
}

/* The same time in the account of the handshake that is under way. */
__noinline int charge_handshake(struct thread_slot *slot, u64 spent, u32 owner, u32 state)
{
	if (!slot)
		return 0;
	__sync_fetch_and_add(&slot->handshake.state_ns[state & (STATES - 1)], spent);
	if (owner >= PHASE_HANDSHAKE && owner <= PHASE_CERTIFICATE)
		__sync_fetch_and_add(&slot->handshake.phase_ns[(owner - PHASE_HANDSHAKE) & 7],
				     spent);
	return 0;
}

/* The time up to `now`, which has been taken from the clock of the account. */
static __always_inline void charge_taken(struct thread_slot *slot, u64 now, u64 taken)
{
	u32 owner = slot->owner & (PHASES - 1);
	u32 state = slot->state & (STATES - 1);
	u64 spent = FAULT_CLOCK(slot, taken);
	if (FAULT_LOSES_TIME(now))
		return;
	__sync_fetch_and_add(&slot->ns[owner][state], spent);
	if (unlikely(slot->handshake.active))
		charge_handshake(slot, spent, owner, state);
}

/* Somebody else charged the thread in between: the time since. */
__noinline int charge_again(struct thread_slot *slot)
{
	if (!slot)
		return 0;
	u64 now = bpf_ktime_get_ns();
	u64 last = slot->last_ns;
	if ((s64)(now - last) <= 0)
		return 0;
	if (__sync_val_compare_and_swap(&slot->last_ns, last, now) != last)
		return count_loss(LOSS_CLOCK_RETRY_FAILED);
	charge_taken(slot, now, now - last);
	return 0;
}

/*
 * Add the time since the last charge to (owner, state).
 *
 * A probe can be preempted, and the switch then charges the same thread: whoever moves last_ns
 * owns the interval, so nothing is counted twice or dropped.
 */
static __always_inline void charge(struct thread_slot *slot, u64 now)
{
	u64 last = slot->last_ns;
	if ((s64)(now - last) <= 0)
		return;
	if (unlikely(slot->status == THREAD_PAUSED))
		charge_paused(slot, now);
	else if (unlikely(__sync_val_compare_and_swap(&slot->last_ns, last, now) != last))
		charge_again(slot);
	else
		charge_taken(slot, now, now - last);
}

/* One finished instance of a phase more, or less. */
static __always_inline void add_finished(struct thread_slot *slot, u32 phase, u64 spent, u32 shard,
					 s64 step)
{
	if (FAULT_COUNTS_NOT(phase))
		return;
	/* What was reckoned to begin after its end took no time: not the longest that there is. */
	u32 bucket = latency_bucket((s64)spent > 0 ? spent : 0);
	phase &= PHASES - 1;
	__sync_fetch_and_add(&slot->count[phase], step);
	struct latency_shard *histogram = bpf_map_lookup_elem(&latency, &shard);
	if (histogram && bucket < LATENCY_BUCKETS)
		__sync_fetch_and_add(&histogram->count[phase][bucket], step);
}

/* One more, in the shard of this CPU, which is returned. */
__noinline u32 finished(struct thread_slot *slot, u32 phase, u64 spent)
{
	u32 shard = this_shard();
	if (slot)
		add_finished(slot, phase, spent, shard, 1);
	return shard;
}

#endif

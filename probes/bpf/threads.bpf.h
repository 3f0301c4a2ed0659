/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which threads have an account.
 *
 * Accounts are made in two places only: at sched_process_fork, and by the task iterator. Both run
 * in a process and hold none of the scheduler's locks, so they may allocate the task's storage.
 * (sched_wakeup_new fires under the lock of a run queue.) Every other program only looks up: what a
 * thread without an account does costs one lookup, and is not counted again.
 *
 * A thread is asked about by both at the same time when it starts while the iterator runs. Whoever
 * changes its mark makes the account, and only then takes a slot.
 */
#ifndef TLSTAX_THREADS_BPF_H
#define TLSTAX_THREADS_BPF_H

#include "account.bpf.h"

enum { TAKE_ATTEMPTS = 16 };

/*
 * Slots that user space gave back, after it had read what their threads left: entry 0 counts them,
 * the others are a ring of their indices. No lock: the programs take one by moving reused_count.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} free_slots SEC(".maps");

/* A recycled slot, -1: there is none. */
__noinline s64 take_recycled(void)
{
	u32 zero = 0;
	volatile u64 *recycled = bpf_map_lookup_elem(&free_slots, &zero);

	if (!recycled)
		return -1;
	for (int i = 0; i < TAKE_ATTEMPTS; i++) {
		u64 taken = lifecycle.reused_count;
		if (taken >= *recycled)
			return -1;
		if (__sync_val_compare_and_swap(&lifecycle.reused_count, taken, taken + 1) != taken)
			continue;
		u32 entry = 1 + taken % config.slots;
		u64 *index = bpf_map_lookup_elem(&free_slots, &entry);
		return index ? (s64)*index : -1;
	}
	return -1;
}

/* A slot that was never in use, -1: there is none. */
__noinline s64 take_fresh(void)
{
	for (int i = 0; i < TAKE_ATTEMPTS; i++) {
		u64 fresh = lifecycle.fresh_count;
		if (fresh >= config.slots)
			return -1;
		if (__sync_val_compare_and_swap(&lifecycle.fresh_count, fresh, fresh + 1) == fresh)
			return (s64)fresh;
	}
	return -1;
}

static __always_inline void fill_slot(struct thread_slot *slot, struct task_struct *task, u64 now,
				      u32 state, u32 base)
{
	slot->tid = task->pid;
	slot->sched_cpu_ns = task->se.sum_exec_runtime;
	slot->first_counts.cpu_ns = task->se.sum_exec_runtime;
	slot->first_counts.switch_count = task->nvcsw + task->nivcsw;
	if (bpf_core_field_exists(task->sched_info.run_delay)) {
		slot->first_counts.wait_ns = task->sched_info.run_delay;
		slot->block_wait_ns = task->sched_info.run_delay;
	}
	slot->thread_start_ns = task->start_time;
	if (HAS_THREAD_POINTER(task))
		slot->stack_base = THREAD_POINTER(task);
	slot->first_ns = now;
	slot->last_ns = now;
	slot->phase_event_ns = now;
	slot->state = state;
	slot->owner = base;
	slot->base = base;
	slot->wait_user_stack = -1;
	slot->wait_kernel_stack = -1;
	__builtin_memcpy(slot->comm, task->comm, sizeof(slot->comm));
	slot->status = control.paused ? THREAD_PAUSED : THREAD_LIVE;
}

/* The task's mark, or NULL when the kernel refuses the storage. */
static __always_inline struct slot_ref *storage_of(struct task_struct *task)
{
	struct slot_ref *ref =
		bpf_task_storage_get(&slot_of_task, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!ref) /* another CPU created it just now, which is an error, too */
		ref = bpf_task_storage_get(&slot_of_task, task, NULL, 0);
	return ref;
}

/* Make the thread's account; `state` and `base` hold from `now` on. NULL: not by this caller. */
static __noinline struct thread_slot *open_account(struct task_struct *task, u64 now, u32 state,
						   u32 base)
{
	struct slot_ref *ref = storage_of(task);

	if (!ref) {
		__sync_fetch_and_add(&lifecycle.refused_count, 1);
		count_loss(LOSS_STORAGE_FAILED);
		return NULL;
	}
	u32 mark = ref->index_plus_one;
	if (mark && mark != MARK_NO_ROOM)
		return NULL;
	if (__sync_val_compare_and_swap(&ref->index_plus_one, mark, MARK_MAKING) != mark)
		return NULL;
	s64 taken = take_recycled();
	if (taken < 0)
		taken = take_fresh();
	u32 index = (u32)taken;
	struct thread_slot *slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot) {
		if (!mark) {
			__sync_fetch_and_add(&lifecycle.untracked_count, 1);
			count_loss(LOSS_THREAD_SLOTS_FULL);
		}
		ref->index_plus_one = MARK_NO_ROOM;
		return NULL;
	}
	if (mark)
		__sync_fetch_and_add(&lifecycle.untracked_count, -1);
	fill_slot(slot, task, now, state, base);
	__sync_val_compare_and_swap(&ref->index_plus_one, MARK_MAKING, index + 1);
	return slot;
}

/*
 * The thread has ended, with or without an account: the mark tells, as one may have been made since
 * the caller looked. Its slot may be another thread's as soon as user space has read it, while a
 * process's first thread stays visible as a zombie.
 */
static __noinline int close_account(struct task_struct *task)
{
	struct slot_ref *ref = bpf_task_storage_get(&slot_of_task, task, NULL, 0);

	if (!ref)
		return 0;
	u32 mark = ref->index_plus_one;
	if (mark == MARK_ENDED || mark == MARK_MAKING ||
	    __sync_val_compare_and_swap(&ref->index_plus_one, mark, MARK_ENDED) != mark)
		return 0;
	if (mark == MARK_NO_ROOM) {
		__sync_fetch_and_add(&lifecycle.untracked_count, -1);
		return 0;
	}
	u32 index = mark - 1;
	struct thread_slot *slot = bpf_map_lookup_elem(&slots, &index);
	if (slot) {
		slot->status = THREAD_EXITED;
		__sync_fetch_and_add(&lifecycle.ended_count, 1);
	}
	return 0;
}

#endif

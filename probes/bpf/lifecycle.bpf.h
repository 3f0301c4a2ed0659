/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The target's threads: new ones, those that end, those that exist before tlstax attaches; and what
 * happens to them while the dense programs are detached.
 */
#ifndef TLSTAX_LIFECYCLE_BPF_H
#define TLSTAX_LIFECYCLE_BPF_H

#include "scheduler.bpf.h"

/* A new thread, which no CPU runs yet, or a new process. */
SEC("tp_btf/sched_process_fork")
int on_fork(u64 *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx[0];
	struct task_struct *child = (struct task_struct *)ctx[1];

	if (!is_target(parent) || FAULT_NO_ACCOUNT(child))
		return 0;
	if (child->tgid == parent->tgid)
		open_account(child, bpf_ktime_get_ns(), STATE_RUNNABLE, PHASE_BACKGROUND);
	else
		__sync_fetch_and_add(&lifecycle.forked_count, 1);
	return 0;
}

/* The process executed another program. The recording covers the previous one and ends here. */
SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	if (is_target(task))
		lifecycle.executed_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit_thread(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	if (!is_target(task))
		return 0;
	struct thread_slot *slot = find_slot(task);
	if (!slot) {
		close_account(task);
		return 0;
	}
	u64 now = bpf_ktime_get_ns();
	bool paused = slot->status == THREAD_PAUSED;
	if (slot->state != STATE_ON_CPU && !paused)
		came_unseen(slot, task, now);
	charge(slot, now);
	confirm_pending(slot, now);
	end_command(slot, now);
	put_aside(slot);
	if (slot->base == PHASE_DISCONNECT && !(slot->flags & FLAG_PARK))
		finished(slot, PHASE_DISCONNECT, now - slot->base_start_ns);
	__builtin_memcpy(slot->comm, task->comm, sizeof(slot->comm));
	if (paused) {
		read_last_counts(task, slot, now);
		slot->exit_ns = now;
		close_account(task);
	}
	return 0; /* its account ends with its last switch */
}

/* A dense phase's boundaries are detached with the scheduler's programs. */
static __always_inline bool is_dense(u32 phase)
{
	u32 dense = 1 << PHASE_RECORD_READ | 1 << PHASE_RECORD_WRITE | 1 << PHASE_COMMAND |
		    1 << PHASE_TDE | 1 << PHASE_IDLE;
	return dense >> (phase & (PHASES - 1)) & 1;
}

/* Drop this frame and all inside of it, if a dense boundary would end it. */
__noinline int drop_dense(struct thread_slot *slot, u32 depth)
{
	if (slot && depth < slot->depth && is_dense(slot->frames[depth & (MAX_FRAMES - 1)].phase))
		slot->depth = depth;
	return 0;
}

/* The dense programs are detached: drop the state that only they would have ended. */
__noinline int pause_thread(struct thread_slot *slot, u64 now)
{
	if (slot && slot->status == THREAD_PAUSED && control.paused == FORGOTTEN) {
		slot->depth = 0;
		slot->flags = 0;
		slot->call_sp = 0;
		slot->handshake.active = 0;
		if (slot->base != PHASE_BACKGROUND)
			slot->base = PHASE_UNKNOWN;
		slot->owner = slot->base;
		return 0;
	}
	if (!slot || slot->status != THREAD_LIVE)
		return 0;
	charge(slot, now);
	confirm_pending(slot, now);
	for (u32 depth = 0; depth < MAX_FRAMES; depth++)
		drop_dense(slot, depth);
	if (is_dense(slot->base))
		slot->base = config.client ? PHASE_BACKGROUND : PHASE_UNKNOWN;
	slot->flags &= ~(FLAG_AWAIT | FLAG_WAIT_STACK | FLAG_BEGUN | FLAG_ANSWERED);
	slot->wait_sp = 0;
	slot->owner = innermost_phase(slot);
	slot->status = THREAD_PAUSED;
	return 0;
}

/*
 * Boundaries of connections were not seen for a while: the thread may serve another one. A new
 * thread, and one that did a handshake, may serve its first.
 */
__noinline int forget_connection(struct thread_slot *slot, u32 state)
{
	if (!slot || !control.blind_ns || FAULT_KEEPS_CONNECTION())
		return 0;
	bool is_new = slot->thread_start_ns > control.blind_ns && (s32)slot->tid != config.tgid &&
		      state <= STATE_BLOCKED_NETWORK;
	if (!slot->handshake.active)
		slot->depth = 0;
	slot->flags &= FLAG_NO_RECORD;
	if (slot->base != PHASE_BACKGROUND || is_new || slot->role == ROLE_CONNECTION)
		slot->base = config.client ? PHASE_BACKGROUND : PHASE_UNKNOWN;
	return 0;
}

/* The phase that it goes on in: parked, or a pool's without work, it is idle. */
static __always_inline u32 resumed_owner(struct thread_slot *slot, u32 state)
{
	if (slot->depth == 0 &&
	    ((slot->flags & (FLAG_PARK | FLAG_POOL) && state == STATE_BLOCKED_FUTEX) ||
	     (slot->flags & FLAG_POOL && state == STATE_BLOCKED_NETWORK)))
		return PHASE_IDLE;
	return innermost_phase(slot);
}

/*
 * The dense programs are attached again: the account continues now, commands at a boundary. Returns
 * whether it does.
 */
__noinline int resume_thread(struct thread_slot *slot, u64 cpu_ns, u64 now, u32 state)
{
	if (!slot || slot->status != THREAD_PAUSED)
		return 0;
	charge(slot, now);
	forget_connection(slot, state);
	if (slot->handshake.active)
		slot->handshake.unfollowed = 1;
	slot->phase_event_ns = now;
	slot->wait_start_ns = now;
	if (slot->flags &
	    FLAG_POOL) /* it may be woken already, and has not come to its next command */
		slot->base_start_ns = now;
	slot->run_start_ns = 0;
	slot->sched_cpu_ns = cpu_ns;
	slot->state = state;
	slot->owner = resumed_owner(slot, state);
	slot->status = THREAD_LIVE;
	return 1;
}

/* What the thread does now. */
static __always_inline void present_state(struct task_struct *task, struct wait *wait)
{
	u64 state = task_state(task);

	wait->state = STATE_RUNNABLE;
	wait->syscall = -1;
	if (task->on_cpu)
		wait->state = STATE_ON_CPU;
	else if (state && !(state & TASK_NEW))
		classify_wait(task, NULL, wait);
}

/*
 * The switches before an account is live are not seen, so the thread's state is looked at again
 * afterwards: without that a thread that left its CPU in between would stay on it. One whose
 * account continues also has the phase of that state, before it can be seen to wake up.
 */
static __always_inline void look_again(struct task_struct *task, struct thread_slot *slot,
				       struct wait *wait, bool continues)
{
	u32 before = wait->state, owner = slot->owner;

	if (slot->run_start_ns)
		return;
	present_state(task, wait);
	if (wait->state == before)
		return;
	if (continues)
		slot->owner = resumed_owner(slot, wait->state);
	if (__sync_val_compare_and_swap(&slot->state, before, wait->state) != before && continues)
		slot->owner = owner;
}

/* A thread that has no account yet. */
static __always_inline void adopt(struct task_struct *task, struct wait *wait)
{
	bool serves = !config.client && task->pid != task->tgid &&
		      wait->state <= STATE_BLOCKED_NETWORK && !is_io_worker(task);
	struct thread_slot *slot = open_account(task, bpf_ktime_get_ns(), wait->state,
						serves ? PHASE_UNKNOWN : PHASE_BACKGROUND);

	if (!slot) /* another one made it, and sees the thread end */
		return;
	if (task->flags & TASK_EXITING) { /* and on_exit_thread() may have found no account */
		close_account(task);
		return;
	}
	look_again(task, slot, wait, false);
}

/* One whose account continues. */
static __always_inline void resume(struct task_struct *task, struct thread_slot *slot,
				   struct wait *wait)
{
	u64 cpu_ns = task->se.sum_exec_runtime;

	if (resume_thread(slot, cpu_ns, bpf_ktime_get_ns(), wait->state))
		look_again(task, slot, wait, true);
}

/*
 * Threads that exist when tlstax attaches: their state now, their phase at the next boundary. While
 * it records, those that had no room before.
 */
SEC("iter/task")
int each_thread(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct wait wait;
	if (!task || !is_target(task))
		return 0;
	struct thread_slot *slot = find_slot(task);
	if (control.paused && slot) {
		pause_thread(slot, bpf_ktime_get_ns());
		if (task->flags & TASK_EXITING) /* its last switch will not be seen */
			close_account(task);
		return 0;
	}
	if (!slot && (task->flags & TASK_EXITING || FAULT_NO_ACCOUNT(task)))
		return 0;
	present_state(task, &wait);
	if (slot)
		resume(task, slot, &wait);
	else
		adopt(task, &wait);
	return 0;
}

#endif

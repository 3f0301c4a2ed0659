/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Switches and wake-ups: who runs, who waits, and for what.
 */
#ifndef TLSTAX_SCHEDULER_BPF_H
#define TLSTAX_SCHEDULER_BPF_H

#include "closure.bpf.h"
#include "flow.bpf.h"
#include "pending.bpf.h"
#include "phases.bpf.h"
#include "threads.bpf.h"

/*
 * The slot of a thread that runs here: the switch to it has noted which one, which costs less than
 * to ask for it. Where that switch was not seen, or came to another CPU, it is asked for.
 */
static __always_inline struct thread_slot *running_slot(struct task_struct *task,
							struct cpu_counts *cpu)
{
	if (likely(cpu && cpu->current == (u64)task)) {
		u32 index = cpu->current_index;
		struct thread_slot *slot = bpf_map_lookup_elem(&slots, &index);
		if (likely(slot && slot->tid == task->pid))
			return slot;
	}
	return find_slot(task);
}

/*
 * The clocks of the CPU that the thread is on, 0: this kernel does not show them. Linux 6.18's
 * verifier searches all types of the kernel at each pointer that a program follows like this, so
 * it is done once, before paths part.
 */
static __always_inline void read_clocks(struct task_struct *task, u64 now,
					struct cpu_clocks *clocks)
{
	clocks->lag_ns = clocks->uncharged_ns = 0;
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return;
	struct rq *rq = task->se.cfs_rq->rq;
	clocks->lag_ns = now - rq->clock;
	clocks->uncharged_ns = rq->clock - rq->clock_task;
}

/*
 * How long after the end of a thread that has blocked the scheduler last looked at its clock: where
 * it finds nobody to run here, it looks on other CPUs, and looks at the clock again. That time is
 * the thread's no more, and is not in what the clocks above show as late.
 */
static __always_inline u64 choice_ns(struct task_struct *task, u64 now,
				     const struct cpu_clocks *clocks)
{
	u64 spent = now - clocks->lag_ns - clocks->uncharged_ns - task->se.exec_start;

	return spent < CHOICE_MOST_NS ? spent : 0;
}

/*
 * When the thread's stay on the CPU ended. The tracepoint fires after the next thread was chosen,
 * the scheduler's timestamp is earlier.
 *
 * - A thread that blocks has done so at the timestamp: choosing the next one is not its time.
 * - A thread that is preempted has run until now. Its timestamp is that of the wake-up that
 *   preempts it, up to 60 us earlier, and the scheduler charges the time since to the next thread.
 *
 * `late` is how much later the switch is than the timestamp, less the same of the switch to the
 * thread. It is counted as handed_ns: the ledger's time less this compares with the scheduler's.
 * Where the kernel shows its clocks, no count of the scheduler's is in it.
 */
static __always_inline u64 left_cpu(struct thread_slot *slot, struct task_struct *task, u64 now,
				    bool runnable, const struct cpu_clocks *clocks)
{
	u64 counted = task->se.sum_exec_runtime - slot->sched_cpu_ns;
	s64 gap = (s64)(now - slot->run_start_ns - counted), stolen, late;
	s64 choice_most = CHOICE_MOST_NS;
	u64 end = now;

	if (unlikely(!slot->run_start_ns))
		return now;
	if (bpf_core_field_exists(task->se.cfs_rq)) {
		if (!runnable)
			end = now - choice_ns(task, now, clocks);
		late = (s64)(clocks->lag_ns - slot->came.lag_ns);
		stolen = (s64)(clocks->uncharged_ns - slot->came.uncharged_ns);
	} else {
		choice_most = SWITCH_GAP_NS;
		late = gap > SWITCH_GAP_NS || gap < -SWITCH_GAP_NS ? 0 : gap;
		stolen = gap - late;
	}
	slot->steal_ns += stolen + FAULT_STEALS(now - slot->run_start_ns);
	/* The scheduler looks at its clock at every tick. */
	if (unlikely((runnable && late < TICK_NS) || (late < 0 && late > -TICK_NS))) {
		slot->handed_ns += late;
	} else {
		gap -= stolen;
		/* With the clocks known it is `late` and the choice: only that is bounded. */
		s64 choice = bpf_core_field_exists(task->se.cfs_rq) ? gap - late : gap;
		if (unlikely(runnable || gap < 0 || choice > choice_most))
			return now;
		end = now - gap;
	}
	if (slot->last_ns > end)
		slot->handed_ns += slot->last_ns - end;
	return end;
}

/* The wait has ended: the thread is runnable, in the same phase. */
static __always_inline void woken(struct thread_slot *slot, u64 now)
{
	charge(slot, now);
	finish_wait(slot, now);
	if (slot->owner == PHASE_IDLE) {
		if (unlikely(slot->flags & FLAG_PARK))
			slot->base = PHASE_CONNECT;
		if (slot->flags & (FLAG_PARK | FLAG_AWAIT | FLAG_POOL))
			slot->base_start_ns = now;
		slot->phase_event_ns = now;
	}
	slot->state = STATE_RUNNABLE;
	slot->owner = innermost_phase(slot);
}

enum { UNSEEN_WAKEUPS_MOST = 20 }; /* a second: more are a fault, which closure is to show */

/* How long a thread has waited since the scheduler's stamp; 0: not known. */
static __always_inline u64 waited_unseen_ns(struct thread_slot *slot, u64 now, u64 since)
{
	struct cpu_counts *cpu = find_cpu(bpf_get_smp_processor_id());
	u64 second = now / 1000000000;

	if (!since || !cpu || !cpu->queue_offset_ns)
		return 0;
	s64 waited = (s64)(now - cpu->queue_offset_ns - since);
	if (waited <= 0)
		return 0;
	if (lifecycle.unseen_second != second) {
		lifecycle.unseen_second = second;
		lifecycle.unseen_count = 0;
	}
	if (__sync_fetch_and_add(&lifecycle.unseen_count, 1) >= UNSEEN_WAKEUPS_MOST)
		return 0;
	count_loss(LOSS_SWITCH_MISSED);
	u64 blocked = now - slot->last_ns;
	return (u64)waited < blocked ? (u64)waited : blocked;
}

/*
 * The thread is given a CPU, and no wake-up of it was reported: one kernel runs no program while
 * a certain process is current. It waited for the CPU since the stamp `since`, if there is one.
 */
__noinline int woken_unseen(struct thread_slot *slot, u64 now, u64 since)
{
	if (slot)
		woken(slot, now - waited_unseen_ns(slot, now, since));
	return 0;
}

/* It has been running for `ran`. */
__noinline int ran_unseen(struct thread_slot *slot, u64 now, u64 ran)
{
	if (!slot)
		return 0;
	if (ran > now - slot->last_ns)
		ran = now - slot->last_ns;
	if (slot->state >= STATE_BLOCKED_NETWORK)
		woken(slot, now - ran);
	charge(slot, now - ran);
	slot->state = STATE_ON_CPU;
	slot->run_start_ns = now - ran;
	pending_runs(slot, now - ran);
	return count_loss(LOSS_SWITCH_MISSED);
}

/*
 * The thread is running, but no switch to it was reported: it followed a thread that no program
 * runs for. The time that it has been running is what the scheduler counted since the thread left
 * the CPU, plus the time since the scheduler last updated its count.
 */
static __noinline void came_unseen(struct thread_slot *slot, struct task_struct *task, u64 now)
{
	u64 counted = task->se.sum_exec_runtime - slot->sched_cpu_ns;

	ran_unseen(slot, now, counted + uncounted_ns(task, now));
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return;
	struct rq *rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	u64 uncharged_ns = BPF_CORE_READ(rq, clock) - BPF_CORE_READ(rq, clock_task);
	slot->came.uncharged_ns = uncharged_ns; /* as they were when it came */
	slot->came.lag_ns = slot->run_start_ns - (task->se.exec_start - counted) - uncharged_ns;
}

/* The current thread reaches the kernel: phases whose functions have returned unseen end here. */
static __always_inline void end_returned(struct thread_slot *slot, struct task_struct *task,
					 u64 now)
{
	if (unlikely(may_have_returned(slot))) {
		struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(task);
		drop_returned(slot, now, REGS_SP(user));
	}
}

/* `task` is the current thread. */
static __always_inline void switch_out(u64 *ctx, struct task_struct *task, struct cpu_counts *cpu,
				       u64 now, u64 left_as, const struct cpu_clocks *clocks)
{
	bool exiting = task->flags & TASK_EXITING;
	struct thread_slot *slot = running_slot(task, cpu);
	struct wait wait = {};

	if (unlikely(!slot || slot->status != THREAD_LIVE))
		return;
	if (unlikely(slot->state != STATE_ON_CPU))
		came_unseen(slot, task, now);
	s64 handed_before_ns = slot->handed_ns;
	charge(slot, left_cpu(slot, task, now, !left_as, clocks));
	u64 left = slot->last_ns; /* what it did before it blocked ended there, and not now */
	count_stay(task, slot, cpu, slot->handed_ns - handed_before_ns);
	if (unlikely(exiting && left_as & TASK_DEAD)) {
		read_last_counts(task, slot, now);
		slot->exit_ns = slot->last_ns;
		close_account(task);
		return;
	}
	slot->seen_count++;
	slot->sched_cpu_ns = task->se.sum_exec_runtime;
	if (unlikely(!left_as)) {
		if (config.covered_by_tracepoint)
			pending_preempted(slot, now);
		slot->state = STATE_RUNNABLE;
		return;
	}
	end_returned(slot, task, left);
	classify_current(slot, &wait);
	if (config.flow) {
		if (wait.state == STATE_BLOCKED_NETWORK && !awaits(slot))
			flow_wait(slot, wait.kind, left);
	} else if (config.covered_by_tracepoint) {
		pending_wait(slot, wait.state, wait.kind, left);
	}
	slot->wait_start_ns = now;
	if (bpf_core_field_exists(task->sched_info.run_delay))
		slot->block_wait_ns = task->sched_info.run_delay;
	slot->wait_syscall = wait.syscall;
	slot->state = wait.state;
	if (slot->depth == 0 &&
	    ((slot->flags & (FLAG_AWAIT | FLAG_POOL) && wait.state == STATE_BLOCKED_NETWORK) ||
	     (slot->flags & (FLAG_PARK | FLAG_POOL) && wait.condition)))
		slot->owner = PHASE_IDLE;
	if (unlikely(slot->handshake.active) && wait.state == STATE_BLOCKED_NETWORK)
		slot->handshake.network_wait_count++;
	walk_wait(ctx, slot);
}

static __always_inline void switch_in(struct task_struct *task, struct cpu_counts *cpu, u64 now,
				      const struct cpu_clocks *clocks)
{
	u32 index = slot_index(task);
	struct thread_slot *slot = bpf_map_lookup_elem(&slots, &index);
	if (unlikely(!slot || slot->status != THREAD_LIVE))
		return;
	if (unlikely(slot->state >= STATE_BLOCKED_NETWORK)) {
		bool is_known = bpf_core_field_exists(task->sched_info.last_queued);
		woken_unseen(slot, now, is_known ? task->sched_info.last_queued : 0);
	} else if (unlikely(slot->state == STATE_ON_CPU)) {
		count_loss(LOSS_SWITCH_MISSED); /* it left, some time since the last charge */
	}
	charge(slot, now);
	slot->state = STATE_ON_CPU;
	slot->run_start_ns = now;
	if (bpf_core_field_exists(task->se.cfs_rq))
		slot->came = *clocks;
	slot->sched_cpu_ns = task->se.sum_exec_runtime;
	pending_runs(slot, now);
	cpu->clock_offset_ns = now - task->se.exec_start;
	cpu->arrived_ns = now;
	cpu->current_index = index;
	cpu->current = (u64)task;
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	s32 tgid = config.tgid;
	bool out = prev->tgid == tgid, in = next->tgid == tgid;

	if (likely(!out && !in) || lifecycle.executed_ns || FAULT_DROPS_SWITCH())
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (unlikely(is_abandoned(now)))
		return 0;
	struct cpu_counts *cpu = find_cpu(bpf_get_smp_processor_id());
	struct cpu_clocks clocks;
	if (!cpu) /* there is one of each CPU */
		return 0;
	count_event(cpu);
	read_clocks(next, now, &clocks); /* both are on this CPU */
	if (out) {
		bool preempted = ctx[0] & 0xff;
		u64 state = switch_state(ctx, prev, config.switch_has_state);
		switch_out(ctx, prev, cpu, now, preempted ? 0 : state, &clocks);
	}
	if (in)
		switch_in(next, cpu, now, &clocks);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	if (!is_target(task) || FAULT_DROPS_WAKEUP())
		return 0;
	count_event(find_cpu(bpf_get_smp_processor_id()));
	struct thread_slot *slot = find_slot(task);
	if (!slot || slot->status != THREAD_LIVE || slot->state < STATE_BLOCKED_NETWORK)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (unlikely(is_abandoned(now)))
		return 0;
	woken(slot, now);
	woken_from_sleep(task, slot, now);
	return 0;
}

#endif

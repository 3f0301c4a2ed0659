/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel itself counts of the target's threads: the reference for the ledger's sums.
 *
 * An iterator reads the kernel's fields at the ends of some windows and stores them in each
 * thread's account; the last switch of a thread stores its final values. No cell of the ledger is
 * read here.
 */
#ifndef TLSTAX_CLOSURE_BPF_H
#define TLSTAX_CLOSURE_BPF_H

#include "account.bpf.h"

enum { TICK_NS = 10000000 }; /* the scheduler updates its count at least this often */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct process_counts);
} process_counts SEC(".maps");

/* CPU time that a running thread has used since the scheduler last updated its count. */
static __always_inline u64 uncounted_ns(struct task_struct *task, u64 now)
{
	struct cpu_counts *cpu = find_cpu(task_cpu(task));
	if (!cpu || !cpu->clock_offset_ns || !task->on_cpu)
		return 0;
	u64 spent = now - cpu->clock_offset_ns - task->se.exec_start;
	return spent < TICK_NS ? spent : 0;
}

/* Time that a runnable thread has been waiting for a CPU, and that is not in run_delay yet. */
static __always_inline u64 queued_ns(struct task_struct *task, u64 now)
{
	struct cpu_counts *cpu = find_cpu(task_cpu(task));
	u64 since = task->sched_info.last_queued;
	/* A task that sleeps may keep the stamp of a queue that it has left. */
	if (!since || !cpu || !cpu->queue_offset_ns || task->on_cpu || task_state(task))
		return 0;
	s64 spent = (s64)(now - cpu->queue_offset_ns - since);
	return spent > 0 ? spent : 0;
}

/*
 * The thread was just woken. Since 6.12 a thread that blocks may stay on its run queue for a while;
 * one that is moved to another CPU meanwhile is stamped as waiting. When it is moved again, or, if
 * it leaves the queue with the stamp, when it runs again, the scheduler adds its sleep to its run
 * delay. Only the scheduler's own counts are used here: a thread that has blocked and that is woken
 * now did not wait for a CPU in between.
 */
static __always_inline void woken_from_sleep(struct task_struct *task, struct thread_slot *slot,
					     u64 now)
{
	struct cpu_counts *cpu = find_cpu(task_cpu(task));

	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return;
	slot->asleep_wait_ns += task->sched_info.run_delay - slot->block_wait_ns;
	u64 since = task->sched_info.last_queued;
	if (!since || !cpu || !cpu->queue_offset_ns)
		return;
	s64 asleep = (s64)(now - cpu->queue_offset_ns - since);
	if (asleep > TICK_NS)
		slot->asleep_wait_ns += asleep;
}

static __always_inline void read_counts(struct task_struct *task, struct thread_slot *slot, u64 now)
{
	struct thread_counts *counts = &slot->counts;

	counts->time_ns = now;
	counts->cpu_ns = task->se.sum_exec_runtime + uncounted_ns(task, now);
	counts->switch_count = task->nvcsw + task->nivcsw;
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return;
	if (slot->state >= STATE_BLOCKED_NETWORK && task_state(task))
		counts->wait_ns = slot->block_wait_ns;
	else
		counts->wait_ns = task->sched_info.run_delay + queued_ns(task, now);
	/* Clocks of two CPUs differ by some microseconds. */
	if (counts->wait_ns < slot->asleep_wait_ns)
		counts->wait_ns = 0;
	else
		counts->wait_ns -= slot->asleep_wait_ns;
}

/* The thread's last switch: its final values. That switch is in no sum of the process. */
static __always_inline void read_last_counts(struct task_struct *task, struct thread_slot *slot,
					     u64 now)
{
	read_counts(task, slot, now);
	slot->counts.seen_count = slot->seen_count;
}

/*
 * The target left this CPU: how long it ran here, by the scheduler and what that charged to others,
 * and the clocks.
 */
static __always_inline void count_stay(struct task_struct *task, struct thread_slot *slot,
				       struct cpu_counts *cpu, s64 handed_ns)
{
	/* A short stay may have handed back more: the switch to it came late, as its CPU was
	 * stolen. */
	s64 spent = (s64)(task->se.sum_exec_runtime - slot->sched_cpu_ns) + handed_ns;
	if (likely(spent > 0))
		__sync_fetch_and_add(&cpu->target_cpu_ns, spent);
	cpu->running_ns = 0; /* of a reading during this stay: it is in the sum now */
	/* Not where the start of the stay was not seen but reckoned: see came_unseen(). */
	if (bpf_core_field_exists(task->sched_info.last_arrival) && slot->run_start_ns &&
	    slot->run_start_ns == cpu->arrived_ns)
		cpu->queue_offset_ns = slot->run_start_ns - task->sched_info.last_arrival;
}

SEC("iter/task")
int each_counts(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 zero = 0;
	struct process_counts *sums = bpf_map_lookup_elem(&process_counts, &zero);
	if (!task || !sums || task->tgid != config.tgid)
		return 0;
	u64 now = bpf_ktime_get_ns();
	FAULT_SEES_READING(now);
	struct thread_slot *slot = find_slot(task);
	u64 uncounted = uncounted_ns(task, now);

	struct signal_struct *process = BPF_CORE_READ(task, signal); /* as in read_clocks() */
	u64 ended = BPF_CORE_READ(process, nvcsw) + BPF_CORE_READ(process, nivcsw);

	if (!sums->thread_count)
		sums->ended_before_count = ended;
	sums->thread_count++;
	sums->uncounted_ns += uncounted;
	sums->switch_count += task->nvcsw + task->nivcsw;
	sums->ended_switch_count = ended;
	sums->has_wait = bpf_core_field_exists(task->sched_info.run_delay);
	if (!slot)
		return 0;
	sums->account_count++;
	read_counts(task, slot, now);
	slot->counts.seen_count = slot->seen_count;
	struct cpu_counts *cpu = find_cpu(task_cpu(task));
	s64 running = (s64)(slot->counts.cpu_ns - slot->sched_cpu_ns);
	if (cpu && task->on_cpu && running > 0)
		cpu->running_ns += running;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* All differences between kernels, decided from the running kernel's BTF and never from a version.
 */
#ifndef TLSTAX_COMPAT_H
#define TLSTAX_COMPAT_H

/* State of a task: `__state` since 5.14, `state` before. 0 is running or runnable. */
static __always_inline u64 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ(task, state);
}

/* The CPU that a task runs on or last ran on. */
static __always_inline u32 task_cpu(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return BPF_CORE_READ(task, cpu);
}

/*
 * State in which `prev` leaves the CPU. Kernels from 5.18 on pass it, because a wake-up on another
 * CPU may already have changed the task's own field.
 */
static __always_inline u64 switch_state(u64 *ctx, struct task_struct *prev, bool has_state)
{
	if (has_state)
		return (u32) * (volatile u64 *)&ctx[3];
	return task_state(prev);
}

#endif

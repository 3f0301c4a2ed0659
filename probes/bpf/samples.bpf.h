/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU samples, each with the phase of its thread and its stacks.
 */
#ifndef TLSTAX_SAMPLES_BPF_H
#define TLSTAX_SAMPLES_BPF_H

#include "waits.bpf.h"

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 on_cpu = bpf_get_smp_processor_id();
	u64 one = 1;

	if (!is_target(task) || is_abandoned(bpf_ktime_get_ns()) || FAULT_DROPS_SAMPLE(on_cpu))
		return 0;
	struct thread_slot *slot = find_slot(task);
	struct cpu_counts *cpu = find_cpu(on_cpu);
	if (cpu && slot && slot->status == THREAD_LIVE)
		__sync_fetch_and_add(&cpu->sample_count, 1);
	struct sample_key key = {.phase = slot ? slot->owner : PHASE_UNKNOWN, .syscall = -1};
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(task);
	key.kernel_stack = -1;
	if (!REGS_IN_USER(&ctx->regs)) {
		key.syscall = (s32)SYSCALL_NUMBER(user);
		key.kernel_stack =
			walks_by_tables() ? walk_kernel(ctx, WALKER_SAMPLE) : walk_stack(ctx, 0);
		if (key.kernel_stack < 0)
			key.kernel_ip = REGS_IP(&ctx->regs);
	}
	key.user_stack = walks_by_tables() ? walk_sample(!REGS_IN_USER(&ctx->regs), &key.user_ip)
					   : walk_stack(ctx, BPF_F_USER_STACK);
	if (key.user_stack < 0)
		key.user_ip = REGS_IP(user);
	u64 *count = bpf_map_lookup_elem(&samples, &key);
	if (!count) {
		if (!bpf_map_update_elem(&samples, &key, &one, BPF_NOEXIST))
			return 0;
		count = bpf_map_lookup_elem(&samples, &key); /* another CPU added it first */
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		count_loss(LOSS_SAMPLE_MAP_FULL);
	return 0;
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * stackcheck - walks stacks of a process, and sends each with what another walker needs.
 *
 * Question: does the walk by unwind tables find what a debugger's library finds?
 * Emits: one record a sample, or every 16th time that a thread leaves the CPU: registers, a copy
 *        of the stack, the stack by tables and by frame pointers, and how long both took. A copy
 *        of the stack may hold data of the process: the records are compared in memory and are
 *        never stored.
 * Attaches: cpu-clock perf events, or tp_btf sched_switch.
 * Needs: what ledger.bpf.c needs.
 * Blind to: stacks larger than the copy.
 * Example: make check-stacks
 */
#include "../../../probes/bpf/unwind.bpf.h"

char LICENSE[] SEC("license") = "GPL";

enum { COPY_BYTES = 61440, PART_BYTES = 2048, RED_ZONE_BYTES = 128, SWITCHES_EACH = 16 };
enum { USER_RING = 3 };
enum { EXITING = 4 }; /* PF_EXITING: the thread has no stack any more */

struct checked_sample {
	u32 in_user;	   /* interrupted in user mode */
	u32 count;	   /* frames by tables, without the interrupted instruction */
	s32 pointer_bytes; /* of frames by frame pointers; negative: there are none */
	u32 copied_bytes;  /* from RED_ZONE_BYTES below the stack pointer on */
	u64 tables_ns;
	u64 pointers_ns;
	u64 tables_again_ns; /* with warm caches */
	u64 pointers_again_ns;
	u64 pc;
	u32 end; /* enum walk_count */
	u32 tables_first;
	u64 depth_bytes; /* from the stack pointer to that of the outermost frame */
	u64 reg[16];
	u64 frame[UNWIND_FRAMES + 1];
	u64 pointer_frame[UNWIND_FRAMES + 1];
	u8 copy[COPY_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 26);
} checked SEC(".maps");

u64 checked_lost SEC(".data.lost") = 0;

static __always_inline u64 by_tables(struct walk *walk)
{
	u64 start = bpf_ktime_get_ns();
	begin_walk(walk);
	walk_all(walk);
	return bpf_ktime_get_ns() - start;
}

static __always_inline u64 by_pointers(void *ctx, struct checked_sample *sample)
{
	u64 start = bpf_ktime_get_ns();
	sample->pointer_bytes =
		bpf_get_stack(ctx, sample->pointer_frame, UNWIND_FRAMES * 8, BPF_F_USER_STACK);
	return bpf_ktime_get_ns() - start;
}

static __always_inline int check(void *ctx, u32 key, bool in_user)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!is_target(task) || config.no_user_stacks)
		return 0;
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);
	struct checked_sample *sample = bpf_ringbuf_reserve(&checked, sizeof(*sample), 0);
	if (!walk || !sample) {
		__sync_fetch_and_add(&checked_lost, 1);
		if (sample)
			bpf_ringbuf_discard(sample, 0);
		return 0;
	}
	/* Whoever is first pays for the caches. */
	sample->tables_first = bpf_get_prandom_u32() & 1;
	if (sample->tables_first) {
		sample->tables_ns = by_tables(walk);
		sample->pointers_ns = by_pointers(ctx, sample);
	} else {
		sample->pointers_ns = by_pointers(ctx, sample);
		sample->tables_ns = by_tables(walk);
	}
	sample->tables_again_ns = by_tables(walk);
	sample->pointers_again_ns = by_pointers(ctx, sample);
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(task);
	sample->in_user = in_user;
	sample->pc = user->ip;
	sample->end = walk->ended;
	sample->count = walk->stack.count;
	sample->depth_bytes = walk->sp - user->sp;
	__builtin_memcpy(sample->reg, walk->reg, sizeof(sample->reg));
	__builtin_memcpy(sample->frame, walk->stack.frame, sizeof(sample->frame));
	u64 from = user->sp - RED_ZONE_BYTES;
	u32 copied = 0;
	for (u32 part = 0; part < COPY_BYTES / PART_BYTES; part++) {
		if (bpf_probe_read_user(sample->copy + part * PART_BYTES, PART_BYTES,
					(void *)(from + part * PART_BYTES)))
			break;
		copied = (part + 1) * PART_BYTES;
	}
	sample->copied_bytes = copied;
	bpf_ringbuf_submit(sample, 0);
	return 0;
}

SEC("perf_event")
int check_sample(struct bpf_perf_event_data *ctx)
{
	return check(ctx, WALKER_SAMPLE, ctx->regs.cs & USER_RING);
}

SEC("tp_btf/sched_switch")
int check_switch(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (task->flags & EXITING || bpf_get_prandom_u32() % SWITCHES_EACH)
		return 0;
	return check(ctx, WALKER_WAIT, false);
}

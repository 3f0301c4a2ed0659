/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Walks user stacks by unwind tables: no frame pointers, and no copy of the stack for user mode.
 *
 * A row tells where the caller's stack pointer, rbp and return address are. Work is bounded: at
 * most UNWIND_FRAMES steps, each with two binary searches of fixed length and at most eight reads
 * of the stack, mostly of none.
 * Global functions are verified once and not at each step of the loop, so no kernel needs
 * bpf_loop().
 */
#ifndef TLSTAX_UNWIND_BPF_H
#define TLSTAX_UNWIND_BPF_H

#include "unwind_step.bpf.h"

/* Stacks that were sent, by a hash of their frames. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNWIND_STACKS);
	__type(key, u64);
	__type(value, u32);
} walked_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, UNWIND_MEMORY);
} walked_stacks SEC(".maps");

u32 walked_count SEC(".data.walked") = 0;

/* One for each program that walks: a sample can interrupt the scheduler's. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WALKERS);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

__noinline int count_walk(u32 what)
{
	u64 *count = bpf_map_lookup_elem(&walk_counts, &what);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

enum { NO_SYSCALL = -1 };
enum { STEPS_AT_ONCE = 8 };

enum { COPY_MOST = 16 }; /* bytes of an instruction that is stepped out of line */

/* Of the current thread. */
static __always_inline void begin_walk(struct walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(task);

	read_registers(walk, user);
	walk->pc = REGS_IP(user);
	walk->sp = REGS_SP(user);
	reset_walk(walk);
	if (bpf_core_field_exists(task->utask->return_instances)) {
		struct uprobe_task *utask = BPF_CORE_READ(task, utask);
		if (!utask)
			return;
		if (BPF_CORE_READ(utask, active_uprobe)) {
			u64 beyond = walk->pc - BPF_CORE_READ(utask, xol_vaddr);
			if (beyond < COPY_MOST)
				walk->pc = BPF_CORE_READ(utask, vaddr) + beyond;
		}
		walk->instance = (u64)BPF_CORE_READ(utask, return_instances);
		if (walk->instance)
			walk->trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
	}
}

/* Some steps: as walk_step(). Loops are nested because each turn of one is verified. */
__noinline int walk_steps(struct walk *walk)
{
	for (u32 i = 0; walk && i < STEPS_AT_ONCE; i++) {
		int ended = walk_step(walk);
		if (ended)
			return ended;
	}
	return 0;
}

/* Walk to the thread's first function; counts how it ended. */
__noinline int walk_all(struct walk *walk)
{
	if (!walk)
		return 0;
	walk->ended = WALK_TOO_DEEP;
	for (u32 i = 0; i < (UNWIND_FRAMES + 1) / STEPS_AT_ONCE; i++) {
		int ended = walk_steps(walk);
		if (ended) {
			walk->ended = ended - 1;
			break;
		}
	}
	count_walk(walk->ended);
	if (walk->guesses)
		count_walk(WALK_BY_FRAME_POINTER);
	return 0;
}

/* The id of the stack, which is sent when it is seen for the first time; -1: it is lost. */
__noinline int keep_walked(struct walk *walk)
{
	if (!walk || !walk->stack.count)
		return -1;
	u64 hash = walk->hash ^ walk->stack.count;
	u32 *known = bpf_map_lookup_elem(&walked_ids, &hash);
	if (known)
		return *known;
	u32 id = (__sync_fetch_and_add(&walked_count, 1) & (WALKED_STACK - 1)) | WALKED_STACK;
	u64 bytes = walk->stack.count;
	OPAQUE(bytes);
	bytes = (bytes & UNWIND_FRAMES) * sizeof(u64) + 8;
	walk->stack.id = id;
	if (bpf_ringbuf_output(&walked_stacks, &walk->stack, bytes, BPF_RB_NO_WAKEUP)) {
		count_walk(WALK_NOT_SENT);
		return -1;
	}
	/* When this fails, the stack is sent again the next time. */
	bpf_map_update_elem(&walked_ids, &hash, &id, BPF_NOEXIST);
	return id;
}

/* Some frames of the hash of a stack. */
__noinline int hash_some(struct walk *walk, u32 first)
{
	if (!walk)
		return 0;
	u64 hash = walk->hash;
	for (u32 i = 0; i < STEPS_AT_ONCE; i++) {
		u32 at = first + i;
		if (at >= walk->stack.count)
			break;
		OPAQUE(at);
		hash = (hash ^ walk->stack.frame[at & UNWIND_FRAMES]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	walk->hash = hash;
	return 0;
}

/* A hash of a stack that the kernel walked. */
__noinline int hash_frames(struct walk *walk)
{
	if (!walk)
		return 0;
	walk->hash = 0;
	for (u32 first = 0; first < UNWIND_FRAMES; first += STEPS_AT_ONCE) {
		if (first >= walk->stack.count)
			break;
		hash_some(walk, first);
	}
	return 0;
}

/* The kernel's own stack, sent and numbered as those of the user are. */
static __always_inline s32 walk_kernel(void *ctx, u32 walker)
{
	struct walk *walk = bpf_map_lookup_elem(&walks, &walker);

	if (!walk)
		return -1;
	s64 bytes = bpf_get_stack(ctx, walk->stack.frame, UNWIND_FRAMES * sizeof(u64), 0);
	if (bytes <= 0) {
		count_loss(LOSS_KERNEL_STACK_FAILED);
		return -1;
	}
	walk->stack.count = (u64)bytes / sizeof(u64);
	hash_frames(walk);
	return keep_walked(walk);
}

/*
 * The callers of a sampled instruction, which is left to `leaf`. Only a thread that is in the
 * kernel can be in the trap of a probe: in front of others 0xcc is the padding between two
 * functions.
 */
__noinline s32 walk_sample(bool in_kernel, u64 *leaf)
{
	u32 key = WALKER_SAMPLE;
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);

	if (!walk || !leaf)
		return -1;
	begin_walk(walk);
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	if (in_kernel && SYSCALL_NUMBER(user) == NO_SYSCALL)
		before_probe(walk);
	*leaf = walk->pc;
	walk_all(walk);
	return keep_walked(walk);
}

/* The stack of the current thread, which leaves the CPU. */
__noinline s32 walk_waiting(void)
{
	u32 key = WALKER_WAIT;
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);

	if (!walk)
		return -1;
	begin_walk(walk);
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	if (SYSCALL_NUMBER(user) == NO_SYSCALL)
		before_probe(walk);
	keep_frame(walk, walk->pc);
	walk_all(walk);
	return keep_walked(walk);
}

#endif

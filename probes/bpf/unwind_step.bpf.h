/* SPDX-License-Identifier: GPL-2.0-only */
/* One step of a stack walk: from a frame to its caller, by a row, a rule or a frame pointer. */
#ifndef TLSTAX_UNWIND_STEP_BPF_H
#define TLSTAX_UNWIND_STEP_BPF_H

#if defined(__TARGET_ARCH_x86)
#include "unwind_x86.bpf.h"
#else
#include "unwind_arm64.bpf.h"
#endif

enum { RETURN_INSTANCES = 4 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct return_instance {
	unsigned long orig_ret_vaddr;
	bool chained;
	struct return_instance *next;
};

struct uprobe;

struct uprobe_task {
	unsigned long vaddr; /* of the probed instruction */
	struct uprobe *active_uprobe;
	unsigned long xol_vaddr; /* of its copy, which is executed in its place */
	struct return_instance *return_instances;
};

struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct mm_struct {
	struct uprobes_state uprobes_state;
};

#pragma clang attribute pop

/* A function with a return probe: the kernel knows where it really returns to. */
static __always_inline void see_through_probe(struct walk *walk)
{
	struct return_instance *instance = (struct return_instance *)walk->instance;

	for (u32 i = 0; i < RETURN_INSTANCES && instance; i++) {
		walk->pc = BPF_CORE_READ(instance, orig_ret_vaddr);
		bool chained = BPF_CORE_READ(instance, chained);
		instance = BPF_CORE_READ(instance, next);
		if (!chained)
			break;
	}
	walk->instance = (u64)instance;
}

static __always_inline void keep_frame(struct walk *walk, u64 pc)
{
	u32 count = walk->stack.count;

	walk->stack.frame[count & UNWIND_FRAMES] = pc;
	walk->stack.count = count + 1;
	walk->hash = (walk->hash ^ pc) * 0x9e3779b97f4a7c15ull;
	walk->hash ^= walk->hash >> 29;
}

__noinline int step_by_rule(struct walk *walk, u32 number)
{
	if (!walk)
		return WALK_UNSUPPORTED;
	struct unwind_rule *rule = bpf_map_lookup_elem(&unwind_rules, &number);
	u64 saved = 0;
	int why;

	if (!rule)
		return WALK_UNSUPPORTED;
	if (rule->kind == RULE_SIGNAL)
		return step_over_signal(walk, rule);
	if (read_frame_pointer(walk))
		return WALK_UNREADABLE;
	u64 cfa = cfa_of(walk, rule, &why);
	if (!cfa)
		return why;
	if (rule->saved == SAVED_AT_CFA)
		saved = cfa + rule->saved_offset;
	else if (rule->saved == SAVED_AT_RBP)
		saved = walk->bp + rule->saved_offset;
	else if (rule->saved == SAVED_REGISTER && walk->steps == 0)
		walk->bp = walk->reg[rule->saved_offset & (DWARF_REGISTERS - 1)];
	return step_to(walk, cfa, saved, rule->kind == RULE_REGISTER ? rule->add : 0);
}

/* One frame. 0: go on; else why the walk ends here, plus one. */
__noinline int walk_step(struct walk *walk)
{
	if (!walk)
		return WALK_UNSUPPORTED + 1;
	u32 row = walk->exact ? find_row(walk, walk->pc) : find_row_again(walk);
	u32 kind = row >> 8 & 7, was_guessed = walk->guessed;
	int failed;

	if (row == NO_RANGE && walk->steps) {
		/* What a frame pointer led to is no code: then it was none. */
		if (was_guessed && walk->stack.count)
			walk->stack.count--;
		return WALK_NO_MAPPING + 1;
	}
	if (row != NO_RANGE && kind == ROW_END)
		return WALK_COMPLETE + 1;
	walk->guessed = 0;
	walk->exact = 0;
	if (row == NO_RANGE || kind == ROW_NONE) {
		walk->guesses++;
		failed = step_by_frame_pointer(walk,
					       row == NO_RANGE ? WALK_NO_MAPPING : WALK_NO_ROW);
	} else if (kind == ROW_RULE) {
		failed = step_by_rule(walk, row >> 11);
	} else {
		if (kind == ROW_BP && read_frame_pointer(walk))
			return WALK_UNREADABLE + 1;
		u64 cfa = (kind == ROW_SP ? walk->sp : walk->bp) + (row >> 11 & 0x1fff) * 8;
		u32 below = row >> 24;
		failed = step_to(walk, cfa, below ? cfa - below * 8 : 0,
				 below ? RETURN_BESIDE_FRAME : 0);
	}
	if (failed)
		return failed + 1;
	if (walk->trampoline && walk->pc == walk->trampoline)
		see_through_probe(walk);
	if (!walk->pc) /* threads may begin so; what is no frame pointer may lead there, too */
		return (walk->guessed ? WALK_NO_ROW : WALK_COMPLETE) + 1;
	if (walk->stack.count >= UNWIND_FRAMES)
		return WALK_TOO_DEEP + 1;
	/* Readers take 1 from a return address: not from an interrupted instruction. */
	keep_frame(walk, walk->pc + walk->exact);
	walk->steps++;
	return 0;
}

#endif

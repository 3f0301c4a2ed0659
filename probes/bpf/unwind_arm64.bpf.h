/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What walks of user stacks need to know of arm64: registers and frames.
 *
 * Rows are as on x86-64 (collectors/unwinding/row_format.py), with x29 for rbp, and the return
 * address in x30 or at a place that the row gives. It may be signed: its signature is cut off.
 */
#ifndef TLSTAX_UNWIND_ARM64_BPF_H
#define TLSTAX_UNWIND_ARM64_BPF_H

#include "unwind_rows.bpf.h"

enum { CALLER_SAVED_FRAMES = 2 };

static __always_inline void read_registers(struct walk *walk, struct pt_regs *user)
{
#pragma unroll
	for (int i = 0; i <= REGISTER_LR; i++)
		walk->reg[i] = user->regs[i];
	walk->reg[REGISTER_SP] = user->sp;
	walk->bp = user->regs[REGISTER_FP];
	walk->lr = user->regs[REGISTER_LR];
}

/* In the trap of a probe pc is at the breakpoint itself. */
static __always_inline void before_probe(struct walk *walk)
{
}

/* Without a row: x30 where a function was interrupted, else the frame record. */
__noinline int step_by_frame_pointer(struct walk *walk, u32 otherwise)
{
	if (!walk)
		return otherwise;
	u64 record[2], returns = walk->lr & CODE_ADDRESS;

	walk->lr = 0;
	if (walk->steps == 0) {
		/* Assembly and stubs without rows are mostly leaves, which save nothing. */
		u32 row = find_row(walk, returns - 4);
		if (row != NO_RANGE && (row >> 8 & 7) != ROW_NONE) {
			walk->pc = returns;
			return 0;
		}
	}
	if (read_frame_pointer(walk))
		return WALK_UNREADABLE;
	if (walk->bp < walk->sp || walk->bp - walk->sp > GUESS_MOST || walk->bp % sizeof(u64))
		return otherwise;
	if (read_stack(record, sizeof(record), walk->bp))
		return WALK_UNREADABLE;
	walk->sp = walk->bp + sizeof(record);
	walk->bp = record[0];
	walk->pc = record[1] & CODE_ADDRESS;
	walk->guessed = 1;
	return 0;
}

/* The registers that the kernel stored when it called a signal handler: x29, x30, sp, pc. */
static __always_inline int step_over_signal(struct walk *walk, struct unwind_rule *rule)
{
	u64 saved[2], place[2];

	if (read_stack(saved, sizeof(saved), walk->sp + rule->saved_offset) ||
	    read_stack(place, sizeof(place), walk->sp + rule->offset))
		return WALK_UNREADABLE;
	walk->bp = saved[0];
	walk->bp_at = 0;
	walk->lr = saved[1];
	walk->sp = place[0];
	walk->pc = place[1];
	walk->exact = 1;
	return 0;
}

/* The CFA of a rule; 0 with the reason in *why. */
static __always_inline u64 cfa_of(struct walk *walk, struct unwind_rule *rule, int *why)
{
	u32 number = rule->reg & (DWARF_REGISTERS - 1);
	bool is_stack = number == REGISTER_SP || number == REGISTER_FP;
	u64 base = number == REGISTER_SP   ? walk->sp
		   : number == REGISTER_FP ? walk->bp
					   : walk->reg[number];

	*why = WALK_UNSUPPORTED;
	if (rule->kind != RULE_REGISTER || (!is_stack && walk->steps >= CALLER_SAVED_FRAMES))
		return 0;
	return base + rule->offset;
}

/*
 * To the caller whose stack pointer is `cfa`; its x29 is at `saved`, 0: as it is. The return
 * address is at cfa + return_at, behind that x29, or (0) still in x30.
 */
static __always_inline int step_to(struct walk *walk, u64 cfa, u64 saved, s64 return_at)
{
	u64 returns = walk->lr;

	if (cfa < walk->sp || cfa - walk->sp > CFA_MOST)
		return WALK_UNREADABLE;
	if (!return_at && !walk->lr)
		return WALK_UNSUPPORTED;
	if (return_at) {
		u64 place = return_at == RETURN_BESIDE_FRAME ? saved + 8 : cfa + return_at;
		if (read_word(walk, place))
			return WALK_UNREADABLE;
		returns = walk->word;
	}
	if (saved)
		walk->bp_at = saved;
	walk->sp = cfa;
	walk->pc = returns & CODE_ADDRESS;
	walk->lr = 0;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What walks of user stacks need to know of x86-64: registers, traps, frames. */
#ifndef TLSTAX_UNWIND_X86_BPF_H
#define TLSTAX_UNWIND_X86_BPF_H

#include "unwind_rows.bpf.h"

enum { BREAKPOINT = 0xcc, RIP_IN_PLT = 15, CALLER_SAVED_FRAMES = 2 };

static __always_inline void read_registers(struct walk *walk, struct pt_regs *user)
{
	walk->reg[0] = user->ax;
	walk->reg[1] = user->dx;
	walk->reg[2] = user->cx;
	walk->reg[3] = user->bx;
	walk->reg[4] = user->si;
	walk->reg[5] = user->di;
	walk->reg[6] = user->bp;
	walk->reg[7] = user->sp;
	walk->reg[8] = user->r8;
	walk->reg[9] = user->r9;
	walk->reg[10] = user->r10;
	walk->reg[11] = user->r11;
	walk->reg[12] = user->r12;
	walk->reg[13] = user->r13;
	walk->reg[14] = user->r14;
	walk->reg[15] = user->r15;
	walk->bp = user->bp;
}

/*
 * In the trap of a probe, before the kernel has looked at it, pc is behind the breakpoint and the
 * instruction, mostly a push, is still to come. Afterwards pc may be the same: then a saved
 * register is on top of the stack, and before it a return address.
 */
static __always_inline void before_probe(struct walk *walk)
{
	u8 code = 0;
	u64 top;

	if (read_stack(&code, sizeof(code), walk->pc - 1) || code != BREAKPOINT ||
	    read_stack(&top, sizeof(top), walk->sp))
		return;
	u32 row = find_row(walk, top - 1);
	if (row != NO_RANGE && (row >> 8 & 7) != ROW_NONE)
		walk->pc--;
}

/* Without a row: the return address by frame pointer. */
__noinline int step_by_frame_pointer(struct walk *walk, u32 otherwise)
{
	if (!walk)
		return otherwise;
	u64 saved[2];

	if (walk->steps == 0 && !read_stack(&saved[1], sizeof(u64), walk->sp)) {
		/* Assembly without rows is mostly a leaf that has pushed nothing. */
		u32 row = find_row(walk, saved[1] - 1);
		if (row != NO_RANGE && (row >> 8 & 7) != ROW_NONE) {
			walk->pc = saved[1];
			walk->sp += sizeof(u64);
			return 0;
		}
	}
	if (read_frame_pointer(walk))
		return WALK_UNREADABLE;
	if (walk->bp < walk->sp || walk->bp - walk->sp > GUESS_MOST || walk->bp % sizeof(u64))
		return otherwise;
	if (read_stack(saved, sizeof(saved), walk->bp))
		return WALK_UNREADABLE;
	walk->sp = walk->bp + sizeof(saved);
	walk->bp = saved[0];
	walk->pc = saved[1];
	walk->guessed = 1;
	return 0;
}

/* The registers that the kernel stored when it called a signal handler. */
static __always_inline int step_over_signal(struct walk *walk, struct unwind_rule *rule)
{
	u64 sp, bp, pc;

	if (read_stack(&sp, sizeof(sp), walk->sp + rule->offset) ||
	    read_stack(&bp, sizeof(bp), walk->sp + rule->saved_offset) ||
	    read_stack(&pc, sizeof(pc), walk->sp + rule->add))
		return WALK_UNREADABLE;
	walk->sp = sp;
	walk->bp = bp;
	walk->bp_at = 0;
	walk->pc = pc;
	walk->exact = 1;
	return 0;
}

/* The CFA of a rule; 0 with the reason in *why. */
static __always_inline u64 cfa_of(struct walk *walk, struct unwind_rule *rule, int *why)
{
	u32 number = rule->reg & 15;
	bool is_stack = rule->reg == 7 || rule->reg == 6;
	u64 base = rule->reg == 7 ? walk->sp : rule->reg == 6 ? walk->bp : walk->reg[number];
	u64 place;

	*why = WALK_UNSUPPORTED;
	if (rule->kind == RULE_PLT)
		return walk->sp + rule->offset + ((walk->pc & RIP_IN_PLT) >= rule->reg ? 8 : 0);
	/* Other registers are those of the interrupted function: its caller may still rely on them.
	 */
	if (!is_stack && walk->steps >= CALLER_SAVED_FRAMES)
		return 0;
	if (rule->kind == RULE_REGISTER)
		return base + rule->offset;
	if (rule->kind == RULE_INDIRECT)
		place = base + rule->offset;
	else if (rule->kind == RULE_SCALED)
		place = walk->sp + rule->offset + base * rule->scale;
	else
		return 0;
	if (read_stack(&place, sizeof(place), place)) {
		*why = WALK_UNREADABLE;
		return 0;
	}
	return place + rule->add;
}

/* To the caller whose stack pointer is `cfa`; its rbp is at `saved`, 0: as it is. */
static __always_inline int step_to(struct walk *walk, u64 cfa, u64 saved, s64 return_at)
{
	(void)return_at; /* the return address is right below the CFA */
	if (cfa <= walk->sp || cfa - walk->sp > CFA_MOST)
		return WALK_UNREADABLE;
	if (read_word(walk, cfa - sizeof(u64)))
		return WALK_UNREADABLE;
	if (saved)
		walk->bp_at = saved;
	walk->sp = cfa;
	walk->pc = walk->word;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a function returns to, whether it has returned, and whether a conditional jump is taken.
 *
 * x86-64: a call pushes the return address, and each call that the caller makes afterwards
 * overwrites it. arm64: the address is in x30, and the function keeps it in its frame record (x29,
 * x30). Records are chained through x29; that of a function which has returned is in no chain.
 */
#ifndef TLSTAX_RETURN_ADDRESS_BPF_H
#define TLSTAX_RETURN_ADDRESS_BPF_H

#include "account.bpf.h"

#if defined(__TARGET_ARCH_x86)

enum { CALL_BYTES = 5 }; /* of a direct call */

/*
 * The return address of the function that has the stack pointer `sp` at its entry; 0: unknown. At
 * the call itself it is not on the stack yet.
 */
static __always_inline u64 return_address(struct pt_regs *ctx, u64 sp, u64 cookie)
{
	u64 found = 0;

	if (sp < REGS_SP(ctx))
		return REGS_IP(ctx) + CALL_BYTES;
	bpf_probe_read_user(&found, sizeof(found), (void *)sp);
	return found;
}

static __always_inline bool has_frame(u64 entry_sp, u64 returns)
{
	u64 found;
	return bpf_probe_read_user(&found, sizeof(found), (void *)entry_sp) || found == returns;
}

/* Whether a jump with this condition code is taken, by the thread's flags. */
static __always_inline bool condition_holds(struct pt_regs *ctx, u32 condition)
{
	u64 flags = ctx->flags;
	bool zero = flags >> 6 & 1, sign = flags >> 7 & 1, less = sign != (flags >> 11 & 1);
	bool result;

	switch (condition >> 1) {
	case 0:
		result = flags >> 11 & 1; /* overflow */
		break;
	case 1:
		result = flags & 1; /* carry */
		break;
	case 2:
		result = zero;
		break;
	case 3:
		result = zero || flags & 1;
		break;
	case 4:
		result = sign;
		break;
	case 5:
		result = flags >> 2 & 1; /* parity */
		break;
	case 6:
		result = less;
		break;
	default:
		result = zero || less;
	}
	return result != (condition & 1);
}

#else

enum { CALL_BYTES = 4, FRAME_RECORDS = 24 };

static __always_inline u64 return_address(struct pt_regs *ctx, u64 sp, u64 cookie)
{
	if (COOKIE_AT_CALL(cookie))
		return REGS_IP(ctx) + CALL_BYTES;
	return ctx->regs[REGISTER_LR] & CODE_ADDRESS;
}

/*
 * Whether a frame record below `entry_sp` leads to `returns`. A function in the middle of its
 * prologue has it in x30 still. A chain longer than what is followed says nothing: open.
 */
__noinline int has_frame(u64 entry_sp, u64 returns)
{
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u64 record[2] = {user->regs[REGISTER_FP]};

	if ((user->regs[REGISTER_LR] & CODE_ADDRESS) == returns)
		return 1;
	for (int i = 0; i < FRAME_RECORDS; i++) {
		if (record[0] >= entry_sp ||
		    bpf_probe_read_user(record, sizeof(record), (void *)record[0]))
			return 0;
		if ((record[1] & CODE_ADDRESS) == returns)
			return 1;
	}
	return 1;
}

/* Whether a jump with this condition code is taken, by the thread's flags: N, Z, C, V. */
static __always_inline bool condition_holds(struct pt_regs *ctx, u32 condition)
{
	u64 flags = ctx->pstate >> 28;
	bool overflow = flags & 1, carry = flags >> 1 & 1, zero = flags >> 2 & 1, sign = flags >> 3;
	bool result;

	switch (condition >> 1) {
	case 0:
		result = zero;
		break;
	case 1:
		result = carry;
		break;
	case 2:
		result = sign;
		break;
	case 3:
		result = overflow;
		break;
	case 4:
		result = carry && !zero;
		break;
	case 5:
		result = sign == overflow;
		break;
	case 6:
		result = sign == overflow && !zero;
		break;
	default:
		return true;
	}
	return result != (condition & 1);
}

#endif

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registers of x86-64 and arm64: all that the programs know of the architecture.
 *
 * A stack pointer in the ledger is that of x86-64, where a call pushes its return address: inside
 * of a function it is below that of the caller. On arm64 a call pushes nothing; the planner's stack
 * offsets (COOKIE_STACK_BYTES) make up for it, so that all comparisons hold on both.
 */
#ifndef TLSTAX_ARCH_H
#define TLSTAX_ARCH_H

#if defined(__TARGET_ARCH_x86)

/* The layout is ABI for uprobes and perf events: not relocated. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

#define REGS_SP(regs) ((regs)->sp)
#define REGS_IP(regs) ((regs)->ip)
#define REGS_IN_USER(regs) (((regs)->cs & 3) != 0)
#define SYSCALL_NUMBER(regs) ((s64)(regs)->orig_ax)
#define SYSCALL_ARG0(regs) ((regs)->di)
#define SYSCALL_ARG1(regs) ((regs)->si)
#define SYSCALL_ARG2(regs) ((regs)->dx)
enum { CALL_READ = 0, CALL_RECEIVE = 45, CALL_SELECT = 23, CALL_PSELECT = 270 };
#define REGISTER_PLACE(number) (number)
enum { DWARF_REGISTERS = 16 }; /* a power of two */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Set when the thread is made; later the saved value of a register that glibc never changes. */
struct thread_struct {
	unsigned long fsbase;
};

#pragma clang attribute pop

#define HAS_THREAD_POINTER(task) bpf_core_field_exists((task)->thread.fsbase)
#define THREAD_POINTER(task) ((task)->thread.fsbase)

#elif defined(__TARGET_ARCH_arm64)

/* struct user_pt_regs: ABI for uprobes and perf events, and the head of the kernel's pt_regs. */
struct pt_regs {
	unsigned long regs[31], sp, pc, pstate;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* What follows it in the kernel's own struct (bpf_task_pt_regs) is no ABI: relocated. */
struct pt_regs___kernel {
	u64 orig_x0;
	s32 syscallno;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};

#pragma clang attribute pop

enum { REGISTER_FP = 29, REGISTER_LR = 30, REGISTER_SP = 31, DWARF_REGISTERS = 32 };
/* Above these bits a signed return address has its signature. */
#define CODE_ADDRESS ((1ull << 48) - 1)
#define REGS_SP(regs) ((regs)->sp)
#define REGS_IP(regs) ((regs)->pc)
#define REGS_IN_USER(regs) (((regs)->pstate & 0xf) == 0) /* PSR_MODE_EL0t */
#define SYSCALL_NUMBER(regs) ((s64)((struct pt_regs___kernel *)(regs))->syscallno)
/* regs[0] becomes the result; orig_x0 stays the argument. */
#define SYSCALL_ARG0(regs) (((struct pt_regs___kernel *)(regs))->orig_x0)
#define SYSCALL_ARG1(regs) ((regs)->regs[1])
#define SYSCALL_ARG2(regs) ((regs)->regs[2])
enum { CALL_READ = 63, CALL_RECEIVE = 207, CALL_SELECT = -2 /* none */, CALL_PSELECT = 72 };
/* A cookie has 4 bits for a register: x0 to x7, which hold arguments, and x19 to x26, which keep
 * them. */
#define REGISTER_PLACE(number) ((number) < 8 ? (number) : (number) + 11)
#define HAS_THREAD_POINTER(task) bpf_core_field_exists((task)->thread.uw.tp_value)
#define THREAD_POINTER(task) ((task)->thread.uw.tp_value)

#else
#error "unknown architecture"
#endif

#endif

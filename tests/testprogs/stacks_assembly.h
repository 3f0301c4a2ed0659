/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions of stacks.c that are written by hand. */
#ifndef TLSTAX_STACKS_ASSEMBLY_H
#define TLSTAX_STACKS_ASSEMBLY_H

#include <stdint.h>

/* Written by hand: rbp counts, as in OpenSSL's ciphers, while the spinning function is called. */
void st_counter(void);
#if defined(__x86_64__)
__asm__(".text\n"
	".globl st_counter\n"
	".type st_counter, @function\n"
	"st_counter:\n"
	".cfi_startproc\n"
	"	push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset %rbp, -16\n"
	"	mov $7, %ebp\n"
	"	sub $16, %rsp\n"
	".cfi_def_cfa_offset 32\n"
	"	call st_hold\n"
	"1:	dec %rbp\n"
	"	jnz 1b\n"
	"	add $16, %rsp\n"
	".cfi_def_cfa_offset 16\n"
	"	pop %rbp\n"
	".cfi_def_cfa_offset 8\n"
	".cfi_restore %rbp\n"
	"	ret\n"
	".cfi_endproc\n"
	".size st_counter, .-st_counter\n");
#else
__asm__(".text\n"
	".globl st_counter\n"
	".type st_counter, @function\n"
	"st_counter:\n"
	".cfi_startproc\n"
	"	stp x29, x30, [sp, #-32]!\n"
	".cfi_def_cfa_offset 32\n"
	".cfi_offset x29, -32\n"
	".cfi_offset x30, -24\n"
	"	mov x29, #7\n"
	"	bl st_hold\n"
	"1:	subs x29, x29, #1\n"
	"	b.ne 1b\n"
	"	ldp x29, x30, [sp], #32\n"
	".cfi_restore x29\n"
	".cfi_restore x30\n"
	".cfi_def_cfa_offset 0\n"
	"	ret\n"
	".cfi_endproc\n"
	".size st_counter, .-st_counter\n");
#endif

#if defined(__x86_64__)
/*
 * No call frame information at all: a leaf that has pushed nothing, and one with a frame pointer.
 * Both seem to lead to what is no instruction, so that what they do with the stack is not believed.
 */
void st_bare_leaf(uint64_t rounds);
void st_bare_frame(void);
__asm__(".text\n"
	".globl st_bare_leaf\n"
	".type st_bare_leaf, @function\n"
	"	.fill 64, 1, 0xcc\n"
	"st_bare_leaf:\n"
	"	mov %rdi, %rcx\n"
	"	jrcxz 2f\n"
	"1:	dec %rdi\n"
	"	jnz 1b\n"
	"	ret\n"
	"2:	.byte 0x06\n"
	".size st_bare_leaf, .-st_bare_leaf\n"
	"	.fill 64, 1, 0xcc\n"
	".globl st_bare_frame\n"
	".type st_bare_frame, @function\n"
	"st_bare_frame:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	mov %rsp, %rcx\n"
	"	jrcxz 2f\n"
	"	call st_hold_bp\n"
	"	pop %rbp\n"
	"	ret\n"
	"2:	.byte 0x06\n"
	".size st_bare_frame, .-st_bare_frame\n"
	"	.fill 64, 1, 0xcc\n");

/*
 * The same as OpenSSL 1.0.2 computes big numbers: the stack is moved by the size of a number and
 * aligned, the old one is kept behind the number, and rbp holds data. One of them calls.
 */
void st_bare_moved(uint64_t rounds, uint64_t words);
void st_bare_caller(uint64_t words);
#define MOVE                              \
	"	mov %rsp, %rax\n"               \
	"	push %rbx\n"                    \
	"	push %rbp\n"                    \
	"	push %r12\n"                    \
	"	neg %rsi\n"                     \
	"	lea -16(%rsp, %rsi, 8), %rsp\n" \
	"	neg %rsi\n"                     \
	"	and $-1024, %rsp\n"             \
	"	mov %rax, 8(%rsp, %rsi, 8)\n"   \
	"	mov $7, %ebp\n"
#define MOVE_BACK                \
	"	mov -24(%rdx), %r12\n" \
	"	mov -16(%rdx), %rbp\n" \
	"	mov -8(%rdx), %rbx\n"  \
	"	lea (%rdx), %rsp\n"    \
	"	ret\n"
__asm__(".text\n"
	".globl st_bare_moved\n"
	".type st_bare_moved, @function\n"
	"st_bare_moved:\n" MOVE "1:	dec %rdi\n"
	"	jnz 1b\n"
	"	mov 8(%rsp, %rsi, 8), %rdx\n" MOVE_BACK ".size st_bare_moved, .-st_bare_moved\n"
	"	.fill 64, 1, 0xcc\n"
	".globl st_bare_caller\n"
	".type st_bare_caller, @function\n"
	"st_bare_caller:\n"
	"	mov %rdi, %rsi\n" MOVE "	mov %rax, (%rsp)\n"
	"	call st_hold\n"
	"	mov (%rsp), %rdx\n" MOVE_BACK ".size st_bare_caller, .-st_bare_caller\n"
	"	.fill 64, 1, 0xcc\n");
#endif

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stacks that are hard to walk, each held while its innermost function spins on the CPU.
 *
 * stacks KIND MS: starts a thread, which prints "ready", waits for a byte on standard input, and
 * then spins for MS milliseconds inside of KIND. Compiled without frame pointers. tests/truth
 * compares the stacks that are recorded with the calls that are written here.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLACE __attribute__((noinline, noclone))
#define AFTER() __asm__ volatile("" ::: "memory") /* what is before is no tail call */

enum { DEPTH = 100 };

void *tls_library = (void *)SSL_accept; /* tlstax records only what has one */
static uint64_t spin_ns;
static volatile uint64_t sink;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Without a call, so that its samples have one innermost function. */
PLACE void st_spin(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++)
		sink += i;
}

PLACE void st_hold(void)
{
	uint64_t end = now_ns() + spin_ns;

	while (now_ns() < end)
		st_spin(200000);
	AFTER();
}

PLACE void st_recursive(int depth)
{
	if (depth > 1)
		st_recursive(depth - 1);
	else
		st_hold();
	AFTER();
}

/* Leaves by a jump into st_tail_end: it is not on the stack. */
PLACE void st_tail_end(void)
{
	st_hold();
	AFTER();
}

PLACE void st_tail_begin(void)
{
	st_tail_end();
}

PLACE void st_tail(void)
{
	st_tail_begin();
	AFTER();
}

PLACE void st_alloca(int size)
{
	char *room = alloca((size_t)size);

	memset(room, size, (size_t)size);
	sink += (uint64_t)room[size / 2];
	st_hold();
	sink += (uint64_t)room[size / 3];
}

static void handler(int number)
{
	(void)number;
	st_hold();
	AFTER();
}

PLACE void st_signal(void)
{
	raise(SIGUSR1);
	AFTER();
}

/* Written by hand: rbp counts, as in OpenSSL's ciphers, while the spinning function is called. */
void st_counter(void);
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

/* Keeps rbp, because what has no rows is passed by it. */
__attribute__((noinline, noclone, optimize("no-omit-frame-pointer"))) void st_hold_bp(void)
{
	st_hold();
	AFTER();
}

PLACE void st_leaf(void)
{
	uint64_t end = now_ns() + spin_ns;

	while (now_ns() < end)
		st_bare_leaf(200000);
	AFTER();
}

PLACE void st_frame(void)
{
	st_bare_frame();
	AFTER();
}

PLACE void st_moved(void)
{
	uint64_t end = now_ns() + spin_ns;

	while (now_ns() < end)
		st_bare_moved(200000, 32);
	AFTER();
}

PLACE void st_caller(void)
{
	st_bare_caller(32);
	AFTER();
}

PLACE void st_plain(void)
{
	st_hold();
	AFTER();
}

/* zlib's stream: its functions call `allocate`, so zlib is in the middle of the stack. */
struct stream {
	void *unused[8];
	void *(*allocate)(void *, unsigned, unsigned);
	void (*release)(void *, void *);
	void *more[3];
	unsigned long reserved;
};

PLACE void *st_called_back(void *opaque, unsigned items, unsigned size)
{
	(void)opaque, (void)items, (void)size;
	st_hold();
	AFTER();
	return NULL; /* and zlib gives up */
}

static int (*begin)(struct stream *, int, int, int, int, int, const char *, int);

PLACE void st_zlib(void)
{
	struct stream stream = {.allocate = st_called_back};

	begin(&stream, 1, 8, 15, 8, 0, "1", sizeof(stream));
	AFTER();
}

/* A library that is opened while it is recorded: once before its tables are there, once after. */
PLACE void st_later(void)
{
	void *library = dlopen("libz.so.1", RTLD_NOW);
	char byte;

	begin = (int (*)(struct stream *, int, int, int, int, int, const char *, int))dlsym(
		library, "deflateInit2_");
	st_zlib();
	puts("opened");
	fflush(stdout);
	if (read(STDIN_FILENO, &byte, 1) == 1)
		st_zlib();
	AFTER();
}

static const char *kind;

PLACE void st_run(void)
{
	if (!strcmp(kind, "recursion"))
		st_recursive(DEPTH);
	else if (!strcmp(kind, "tail"))
		st_tail();
	else if (!strcmp(kind, "alloca"))
		st_alloca(5000 + (int)(spin_ns & 1));
	else if (!strcmp(kind, "signal"))
		st_signal();
	else if (!strcmp(kind, "counter"))
		st_counter();
	else if (!strcmp(kind, "leaf"))
		st_leaf();
	else if (!strcmp(kind, "frame"))
		st_frame();
	else if (!strcmp(kind, "moved"))
		st_moved();
	else if (!strcmp(kind, "caller"))
		st_caller();
	else if (!strcmp(kind, "later"))
		st_later();
	else if (!strcmp(kind, "deep"))
		st_recursive(3 * DEPTH);
	else
		st_plain();
	AFTER();
}

static void *thread(void *unused)
{
	char byte;

	puts("ready");
	fflush(stdout);
	if (read(STDIN_FILENO, &byte, 1) == 1)
		st_run();
	puts("done");
	fflush(stdout);
	(void)!read(STDIN_FILENO, &byte, 1);
	return unused;
}

int main(int count, char **words)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_t one;

	if (count != 3)
		return 2;
	kind = words[1];
	spin_ns = strtoull(words[2], NULL, 10) * 1000000;
	sigaction(SIGUSR1, &action, NULL);
	if (pthread_create(&one, NULL, thread, NULL))
		return 1;
	pthread_join(one, NULL);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions that stand for a TLS library's primitives, called as often, with as many bytes and for
 * as long as this program says on its standard output.
 *
 * functions ROUNDS UNIT_US: prints {"kind": "ready"}, waits for a byte on standard input, calls
 * each function ROUNDS times, and prints one line for each: its calls, its bytes, and the CPU time
 * between its first and its last instruction, by the thread's own clock. Then it says for how long
 * it could not run, and waits for another byte before it ends.
 */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Begins with a push, as compilers make it with -fno-omit-frame-pointer. */
#define PROBED __attribute__((noinline, noclone))

struct book {
	const char *name;
	uint64_t calls;
	uint64_t size_bytes;
	uint64_t cpu_ns;
};

struct start {
	uint64_t cpu_ns;
	uint64_t wall_ns;
};

enum { EMPTY, SIZED, INTEGER, RETURNED, OUTER, INNER, RECURSIVE, ESCAPED, SLEEPER, TAIL, BOOKS };

static struct book books[BOOKS] = {
	{.name = "fn_empty"},	  {.name = "fn_sized"},	  {.name = "fn_int"},
	{.name = "fn_returned"},  {.name = "fn_outer"},	  {.name = "fn_inner"},
	{.name = "fn_recursive"}, {.name = "fn_escaped"}, {.name = "fn_sleeper"},
	{.name = "fn_tail"},
};
static uint64_t unit_ns;
static uint64_t disturbed_ns; /* that others, or the hypervisor, had the CPU */
static volatile uint64_t sink;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void spin(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns;

	while (clock_ns(CLOCK_MONOTONIC) < end)
		;
}

static struct start begin(int book, uint64_t size_bytes)
{
	struct start start;

	books[book].calls++;
	books[book].size_bytes += size_bytes;
	start.wall_ns = clock_ns(CLOCK_MONOTONIC);
	start.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return start;
}

static void end(int book, struct start start)
{
	uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start.cpu_ns;

	books[book].cpu_ns += cpu_ns;
	if (book != SLEEPER)
		disturbed_ns += clock_ns(CLOCK_MONOTONIC) - start.wall_ns - cpu_ns;
}

#ifdef __aarch64__
#define NOTHING "\tb 1f\n1:\n" /* kernels before 6.13 single-step a nop */
#define JUMP "\tb "
#else
#define NOTHING "\tpush %rbp\n\tpop %rbp\n"
#define JUMP "\tjmp "
#endif

/* Nothing between its first instruction and its return. */
void fn_empty(uint64_t value);
__asm__(".globl fn_empty\n.type fn_empty, %function\n"
	"fn_empty:\n" NOTHING "\tret\n.size fn_empty, .-fn_empty\n");

/* A nanosecond for each byte. */
PROBED void fn_sized(void *self, const void *data, size_t size_bytes)
{
	struct start start = begin(SIZED, size_bytes);

	sink += (uint64_t)self + (uint64_t)data;
	spin(size_bytes);
	end(SIZED, start);
}

/* The upper half of its argument's register is rubbish. */
PROBED void fn_int(int size_bytes)
{
	struct start start = begin(INTEGER, size_bytes > 0 ? (uint64_t)size_bytes : 0);

	spin(unit_ns);
	end(INTEGER, start);
}

PROBED int fn_returned(int size_bytes)
{
	struct start start = begin(RETURNED, size_bytes > 0 ? (uint64_t)size_bytes : 0);

	spin(unit_ns);
	end(RETURNED, start);
	return size_bytes;
}

PROBED void fn_inner(void)
{
	struct start start = begin(INNER, 16);

	spin(unit_ns);
	end(INNER, start);
}

/* As much time of its own as in the `calls` functions that it calls. */
PROBED void fn_outer(int calls)
{
	struct start start = begin(OUTER, 0);

	for (int i = 0; i < calls; i++) {
		spin(unit_ns);
		fn_inner();
		fn_empty(1);
	}
	end(OUTER, start);
}

PROBED void fn_recursive(int depth)
{
	struct start start = begin(RECURSIVE, 0);

	spin(unit_ns);
	if (depth > 1)
		fn_recursive(depth - 1);
	end(RECURSIVE, start);
}

PROBED void fn_escaped(jmp_buf *out)
{
	begin(ESCAPED, 0);
	longjmp(*out, 1);
}

PROBED void fn_sleeper(void)
{
	struct start start = begin(SLEEPER, 0);
	struct timespec nap = {.tv_nsec = 1000000};

	spin(unit_ns);
	nanosleep(&nap, NULL);
	end(SLEEPER, start);
}

/* Leaves by a jump into fn_sized. */
void fn_tail(void *self, const void *data, size_t size_bytes);
__asm__(".globl fn_tail\n.type fn_tail, %function\n"
	"fn_tail:\n" NOTHING JUMP "fn_sized\n.size fn_tail, .-fn_tail\n");

static void call_all(int round)
{
	void (*volatile wide)(uint64_t) = (void (*)(uint64_t))(uintptr_t)fn_int;
	jmp_buf out;

	for (int shift = 0; shift < 6; shift++)
		fn_sized(NULL, NULL, (size_t)unit_ns << shift);
	wide(0xdeadbeef00000000 + 1000);
	wide(0x7fffffff);
	wide(0xffffffffffffffff);
	sink += (uint64_t)fn_returned(300);
	sink += (uint64_t)fn_returned(-1);
	fn_outer(5);
	fn_recursive(3);
	if (!setjmp(out))
		fn_escaped(&out);
	fn_sleeper();
	fn_tail(NULL, NULL, 100);
	books[TAIL].calls++;
	books[TAIL].size_bytes += 100;
	for (int i = 0; i < 10; i++)
		fn_empty((uint64_t)round);
	books[EMPTY].calls += 15;
}

int main(int count, char **words)
{
	if (count != 3)
		return 2;
	int rounds = atoi(words[1]);
	unit_ns = strtoull(words[2], NULL, 10) * 1000;
	printf("{\"kind\": \"ready\"}\n");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (int round = 0; round < rounds; round++)
		call_all(round);
	for (int i = 0; i < BOOKS; i++)
		printf("{\"kind\": \"function\", \"name\": \"%s\", \"calls\": %lu, \"bytes\": %lu, "
		       "\"cpu_ns\": %lu}\n",
		       books[i].name, books[i].calls, books[i].size_bytes, books[i].cpu_ns);
	printf("{\"kind\": \"done\", \"disturbed_ns\": %lu}\n", disturbed_ns);
	fflush(stdout);
	return getchar() == EOF;
}

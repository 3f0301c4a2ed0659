/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stacks that are hard to walk, each held while its innermost function spins on the CPU.
 *
 * stacks KIND MS: starts a thread, which prints "ready", waits for a byte on standard input, and
 * then spins for MS milliseconds inside of KIND. Compiled without frame pointers. tests/truth
 * compares the stacks that are recorded with the calls that are written here.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stacks_assembly.h"

#ifdef __clang__
#define PLACE __attribute__((noinline))
#else
#define PLACE __attribute__((noinline, noclone))
#endif
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

PLACE void st_plain(void)
{
	st_hold();
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

/* Of unknown size and at a multiple of 64: the frame keeps where its caller's begins. */
PLACE void st_aligned(int size)
{
	_Alignas(64) volatile char aligned[64] = {(char)size};
	char *room = alloca((size_t)size);

	memset(room, size, (size_t)size);
	st_alloca(size);
	sink += (uint64_t)(aligned[size % 64] + room[size / 2]);
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

#if defined(__x86_64__)
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
#else
#define st_leaf st_plain
#define st_frame st_plain
#define st_moved st_plain
#define st_caller st_plain
#endif

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

enum { EDGE_BYTES = 1 << 16, EDGE_PAGE = 1 << 16 }; /* of the largest page there is */
static volatile int is_edge_done;

static int st_edge_begin(void *unused)
{
	(void)unused;
	st_hold();
	is_edge_done = 1;
	return 0;
}

/* A stack whose first frame is at the very end of the memory that can be read. */
PLACE void st_edge(void)
{
	char *memory = mmap(NULL, EDGE_BYTES + EDGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + EDGE_BYTES, EDGE_PAGE, PROT_NONE) ||
	    clone(st_edge_begin, memory + EDGE_BYTES,
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
		  NULL) < 0)
		exit(1);
	while (!is_edge_done)
		usleep(1000);
	AFTER();
}

/* One after the other: what every processor has. */
PLACE void st_each(void)
{
	st_recursive(DEPTH);
	st_tail();
	st_alloca(5000 + (int)(spin_ns & 1));
	st_signal();
	st_counter();
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
	else if (!strcmp(kind, "aligned"))
		st_aligned(5000 + (int)(spin_ns & 1));
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
	else if (!strcmp(kind, "edge"))
		st_edge();
	else if (!strcmp(kind, "deep"))
		st_recursive(3 * DEPTH);
	else if (!strcmp(kind, "each"))
		st_each();
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

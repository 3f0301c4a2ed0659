// SPDX-License-Identifier: GPL-2.0-only
/*
 * A round calls an empty function without a probe, then one of each kind of probe, on all CPUs of
 * the round at once: threads of one process, each on its own CPU, meet before each kind. The price
 * is the difference of their CPU time, so time in which another process ran is not in it. A round
 * in which they did not meet, because a CPU was busy, is not counted.
 */
#include "price_rounds.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	ROUNDS = 9, /* at least 8, or their median has no interval */
	TRIES = 200,
	CODE_PAGE = 4096,
	STACK = 128 << 10,
};

#define PATIENCE_NS (3 * NS_PER_MS) /* for the others of a round, which have just been woken */

static const u32 calls_of[PRICE_KINDS] = {200, 200, 200, 25};

/* What the kernel emulates, and what it single-steps, each followed by a return. */
#ifdef __x86_64__
static const u8 emulated[] = {0x90, 0xc3};	      /* nop */
static const u8 stepped[] = {0x48, 0x89, 0xf8, 0xc3}; /* mov %rdi,%rax */
#else
static const u32 emulated[] = {0x14000001, 0xd65f03c0}; /* b to the next one */
static const u32 stepped[] = {0xaa0103e0, 0xd65f03c0};	/* mov x0, x1 */
#endif

/* What the threads of a set of rounds share. */
static struct rounds {
	u32 cpus_count;
	u32 gathered[TRIES], met[TRIES][PRICE_KINDS];
	u64 spent_ns[TRIES][PRICE_KINDS];
	u32 is_missed[TRIES]; /* whether one waited in vain for another */
	u32 done[TRIES];      /* threads that went through it */
} rounds;
static const u8 *code_page;
static u64 deadline_ns;

static void call(enum price_kind kind)
{
	void (*function)(void);
	const void *place = code_page + (size_t)kind * PRICE_SLOT;

	memcpy(&function, &place, sizeof(function));
	for (u32 i = 0; i < calls_of[kind]; i++)
		function();
}

/* Whether all threads are here in time. */
static bool are_all_here(const u32 *here)
{
	return __atomic_load_n(here, __ATOMIC_ACQUIRE) >= rounds.cpus_count;
}

/* Sleep until all threads have come to the round: on a busy CPU one that slept runs at once. */
static bool gather(u32 round)
{
	u32 *here = &rounds.gathered[round], seen = __atomic_add_fetch(here, 1, __ATOMIC_ACQ_REL);

	if (seen >= rounds.cpus_count)
		syscall(SYS_futex, here, FUTEX_WAKE_PRIVATE, CPU_SETSIZE, NULL, NULL, 0);
	while (!are_all_here(here)) {
		u64 now = monotonic_ns();
		if (now >= deadline_ns)
			return false;
		u64 left_ns = deadline_ns - now; /* of less than a second */
		struct timespec patience = {.tv_nsec = (long)left_ns};
		seen = __atomic_load_n(here, __ATOMIC_ACQUIRE);
		if (seen < rounds.cpus_count)
			syscall(SYS_futex, here, FUTEX_WAIT_PRIVATE, seen, &patience, NULL, 0);
	}
	return monotonic_ns() < deadline_ns;
}

/* Wait, without sleeping, until all are at a kind of the round. False: it is over for all. */
static bool meet(u32 round, enum price_kind kind)
{
	u64 end_ns = monotonic_ns() + PATIENCE_NS;

	__atomic_add_fetch(&rounds.met[round][kind], 1, __ATOMIC_ACQ_REL);
	while (!are_all_here(&rounds.met[round][kind])) {
		if (monotonic_ns() > end_ns)
			__atomic_store_n(&rounds.is_missed[round], 1, __ATOMIC_RELEASE);
		if (__atomic_load_n(&rounds.is_missed[round], __ATOMIC_ACQUIRE))
			return false;
	}
	return true;
}

static u32 whole_rounds(u32 before)
{
	u32 whole = 0;

	for (u32 round = 1; round < before; round++)
		whole += !rounds.is_missed[round];
	return whole;
}

/* Round 0 maps pages and is not counted. All threads stop before the same round, or at the end of
 * the time. */
static void *run_rounds(void *cpu)
{
	cpu_set_t own;

	CPU_ZERO(&own);
	CPU_SET((size_t)cpu, &own);
	if (rounds.cpus_count > 1 && sched_setaffinity(0, sizeof(own), &own))
		return NULL; /* one alone runs where there is room */
	for (u32 round = 0; round < TRIES; round++) {
		if (!gather(round) || whole_rounds(round) == ROUNDS)
			break;
		u32 kind = BARE;
		for (; kind < PRICE_KINDS && meet(round, (enum price_kind)kind); kind++) {
			u64 start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
			call((enum price_kind)kind);
			u64 spent_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
			__atomic_add_fetch(&rounds.spent_ns[round][kind], spent_ns,
					   __ATOMIC_RELAXED);
		}
		if (kind == PRICE_KINDS)
			__atomic_add_fetch(&rounds.done[round], 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* A call without its probe's cost, or with it; nanoseconds. */
static double call_ns(u32 round, enum price_kind kind)
{
	return (double)rounds.spent_ns[round][kind] / rounds.cpus_count / calls_of[kind];
}

bool price_rounds_put(FILE *to, bool has_multi)
{
	static const char *const names[] = {
		[ENTRY] = "uprobe%s emulated",
		[RETURN] = "uretprobe%s emulated",
		[STEPPED] = "uprobe%s stepped",
	};

	for (u32 round = 0; round < TRIES; round++)
		if (rounds.done[round] < rounds.cpus_count) /* or not at all */
			rounds.is_missed[round] = 1;
	if (whole_rounds(TRIES) < ROUNDS)
		return false;
	for (u32 kind = ENTRY; kind < PRICE_KINDS; kind++) {
		fprintf(to, names[kind], has_multi ? "_multi" : "");
		fprintf(to, " %u", rounds.cpus_count);
		for (u32 round = 1; round < TRIES; round++)
			if (!rounds.is_missed[round])
				fprintf(to, " %.1f",
					call_ns(round, (enum price_kind)kind) -
						call_ns(round, BARE));
		fputc('\n', to);
	}
	fflush(to);
	return true;
}

bool price_rounds_run(const u32 *cpus, u32 all, u32 count, u64 until_ns)
{
	static pthread_t threads[CPU_SETSIZE];
	pthread_attr_t attributes;
	u32 started = 0;

	rounds = (struct rounds){.cpus_count = count};
	deadline_ns = until_ns;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	for (; started < count; started++) {
		void *cpu = (void *)(size_t)cpus[(u64)started * all / count];
		if (pthread_create(&threads[started], &attributes, run_rounds, cpu))
			break;
	}
	for (u32 i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&attributes);
	return started == count;
}

int price_code_map(void)
{
	static u8 page[CODE_PAGE];

	for (u32 kind = BARE; kind < PRICE_KINDS; kind++)
		memcpy(page + (size_t)kind * PRICE_SLOT,
		       kind == STEPPED ? (const void *)stepped : (const void *)emulated,
		       kind == STEPPED ? sizeof(stepped) : sizeof(emulated));
	int file = memfd_create("tlstax-prices", MFD_CLOEXEC);
	if (file < 0 || write(file, page, sizeof(page)) != sizeof(page))
		return -1;
	void *code = mmap(NULL, CODE_PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	code_page = code;
	return code == MAP_FAILED ? -1 : file;
}

u64 price_rounds_calls(void)
{
	u64 threads = 0;

	for (u32 round = 0; round < TRIES; round++)
		threads += rounds.done[round];
	return threads * (calls_of[ENTRY] + calls_of[RETURN] + calls_of[STEPPED]);
}

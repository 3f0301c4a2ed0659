// SPDX-License-Identifier: GPL-2.0-only
/*
 * crowd - many threads that wait, and do what they are told.
 *
 * Reads one order a line and answers each with a line of JSON: its threads (without the first) and
 * the CPU time of the process.
 *
 * + N     start N threads, which wait
 * - N     end the N threads that were started last
 * ! US    every second thread spins for US microseconds of its own CPU time, all at once
 * p N     threads wake each other: two tokens go round through all threads, N hops in all
 * c N     start and join N threads, one after the other, on two CPUs at the same time
 * r TID   start a thread with this id, which spins for 20 ms (needs CAP_SYS_ADMIN)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MOST = 65536, STACK_BYTES = 64 << 10, REUSED_MS = 20 };

struct member {
	pthread_t thread;
	sem_t order;
	uint64_t spin_ns; /* 0: end */
};

static struct member members[THREADS_MOST];
static int members_count;
static sem_t done;
static atomic_long hops_left;
static bool is_relay;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void spin(uint64_t ns)
{
	uint64_t end_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns)
		;
}

/* Wake the next one, until all hops are done. */
static void pass_on(const struct member *member)
{
	long next = (member - members + 1) % members_count;
	sem_post(atomic_fetch_sub(&hops_left, 1) > 0 ? &members[next].order : &done);
}

static void *obey(void *argument)
{
	struct member *member = argument;
	for (;;) {
		while (sem_wait(&member->order))
			;
		if (is_relay) {
			pass_on(member);
			continue;
		}
		if (!member->spin_ns)
			return NULL;
		spin(member->spin_ns);
		sem_post(&done);
	}
}

static pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	if (pthread_create(&thread, &attributes, body, argument))
		die("pthread_create");
	pthread_attr_destroy(&attributes);
	return thread;
}

static void grow(long count)
{
	while (count--) {
		struct member *member = &members[members_count++];
		sem_init(&member->order, 0, 0);
		member->thread = start(obey, member);
	}
}

static void shrink(long count)
{
	while (count--) {
		struct member *member = &members[--members_count];
		member->spin_ns = 0;
		sem_post(&member->order);
		pthread_join(member->thread, NULL);
	}
}

static void work(long us)
{
	for (int i = 0; i < members_count; i += 2) {
		members[i].spin_ns = us * 1000ull;
		sem_post(&members[i].order);
	}
	for (int i = 0; i < members_count; i += 2)
		while (sem_wait(&done))
			;
}

static void relay(long hops)
{
	is_relay = true;
	atomic_store(&hops_left, hops);
	sem_post(&members[0].order);
	sem_post(&members[members_count / 2].order);
	for (int token = 0; token < 2; token++)
		while (sem_wait(&done))
			;
	is_relay = false;
}

static void *nothing(void *argument)
{
	return argument;
}

static void *churn(void *argument)
{
	for (long i = *(long *)argument; i > 0; i--)
		pthread_join(start(nothing, NULL), NULL);
	return NULL;
}

static void churn_twice(long count)
{
	long half = count / 2;
	pthread_t other = start(churn, &half);
	churn(&half);
	pthread_join(other, NULL);
}

static inline __attribute__((always_inline)) void read_clock(struct timespec *now)
{
#ifdef __aarch64__
	register long number asm("x8") = SYS_clock_gettime;
	register long result asm("x0") = CLOCK_MONOTONIC;
	register struct timespec *where asm("x1") = now;
	asm volatile("svc #0" : "+r"(result) : "r"(number), "r"(where) : "memory");
#else
	long result;
	register struct timespec *where asm("rsi") = now;
	asm volatile("syscall"
		     : "=a"(result)
		     : "0"(SYS_clock_gettime), "D"(CLOCK_MONOTONIC), "r"(where)
		     : "rcx", "r11", "memory");
#endif
}

/* Shares the thread-local variables of its creator: it calls nothing but the kernel. */
static void spin_without_library(void)
{
	struct timespec now, start;
	read_clock(&start);
	do {
		read_clock(&now);
	} while ((now.tv_sec - start.tv_sec) * 1000000000ll + now.tv_nsec - start.tv_nsec <
		 REUSED_MS * 1000000ll);
}

/* Begin a thread that does that and ends; the result of clone3. */
static long clone_spinning(struct clone_args *arguments)
{
#ifdef __aarch64__
	register long number asm("x8") = SYS_clone3;
	register long result asm("x0") = (long)arguments;
	register size_t size asm("x1") = sizeof(*arguments);
	register void (*body)(void) asm("x2") = spin_without_library;
	asm volatile("svc #0\n\t"
		     "cbnz x0, 1f\n\t"
		     "blr x2\n\t"
		     "mov x0, #0\n\t"
		     "mov x8, #93\n\t"
		     "svc #0\n"
		     "1:"
		     : "+r"(result), "+r"(number)
		     : "r"(size), "r"(body)
		     : "x30", "memory");
#else
	long result;
	asm volatile("syscall\n\t"
		     "test %%rax, %%rax\n\t"
		     "jnz 1f\n\t"
		     "call *%%rbx\n\t"
		     "xor %%edi, %%edi\n\t"
		     "mov $60, %%eax\n\t"
		     "syscall\n"
		     "1:"
		     : "=a"(result)
		     : "0"(SYS_clone3), "D"(arguments), "S"(sizeof(*arguments)),
		       "b"(spin_without_library)
		     : "rcx", "r11", "memory");
#endif
	return result;
}

static void start_as(long tid)
{
	static char stack[STACK_BYTES] __attribute__((aligned(16)));
	static volatile pid_t runs;
	pid_t wanted = tid;
	struct clone_args arguments = {
		.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			 CLONE_SYSVSEM | CLONE_CHILD_CLEARTID,
		.child_tid = (uintptr_t)&runs,
		.stack = (uintptr_t)stack,
		.stack_size = sizeof(stack),
		.set_tid = (uintptr_t)&wanted,
		.set_tid_size = 1,
	};
	runs = 1;
	long result = clone_spinning(&arguments);
	/* The kernel frees the id of the one before a moment after it has ended. */
	for (int tries = 0; result == -EEXIST && tries < 1000; tries++) {
		usleep(1000);
		result = clone_spinning(&arguments);
	}
	if (result < 0) {
		fprintf(stderr, "crowd: clone3: %s\n", strerror(-result));
		exit(1);
	}
	while (runs)
		usleep(1000);
}

int main(void)
{
	char order;
	long number;
	SSL_free(NULL); /* tlstax measures programs with a TLS library */
	sem_init(&done, 0, 0);
	do {
		printf("{\"threads\": %d, \"tid\": %d, \"cpu_ns\": %llu}\n", members_count,
		       getpid(), (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
		fflush(stdout);
		if (scanf(" %c %ld", &order, &number) != 2)
			return 0;
		if (order == '+' && members_count + number <= THREADS_MOST)
			grow(number);
		else if (order == '-' && number <= members_count)
			shrink(number);
		else if (order == '!')
			work(number);
		else if (order == 'p' && members_count)
			relay(number);
		else if (order == 'c')
			churn_twice(number);
		else if (order == 'r')
			start_as(number);
		else
			return 2;
	} while (1);
}

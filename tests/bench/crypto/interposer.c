// SPDX-License-Identifier: GPL-2.0-only
/*
 * interposer - clocks the public-key operations of a server from within, without probes.
 *
 * A library that is loaded before libcrypto (LD_PRELOAD) and defines the functions that libssl
 * calls in a handshake for five operations. Each call is passed on, between two readings of the CPU
 * clock of the thread, and added to a file that INTERPOSER_SUMS names: one `struct sum` for each
 * operation, in the order of `enum operation`, and one for what the readings themselves take.
 * tlstax may see the end of a call only after this library has returned, so nothing that can wait
 * for memory comes after the last reading: the call is counted before it. The file is mapped and
 * shared, so that it can be read while the server runs. A function's time is its own, without that
 * of the others within it: a check of a chain checks signatures, also where the call comes from
 * libcrypto itself. A function that calls another of the same operation (EVP_PKEY_keygen, from some
 * versions on, EVP_PKEY_generate) is one operation.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum operation { SIGN, KEYGEN, DERIVE, VERIFY, CERTIFICATE, OPERATIONS };
#define READINGS OPERATIONS
#define TRIALS 10000

struct sum {
	uint64_t call_count;
	uint64_t cpu_ns;
};

static struct sum unread[OPERATIONS + 1];
static struct sum *sums = unread;

static uint64_t now_ns(void)
{
	struct timespec at;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void count(enum operation which)
{
	__atomic_fetch_add(&sums[which].call_count, 1, __ATOMIC_RELAXED);
}

static void add(enum operation which, uint64_t cpu_ns)
{
	__atomic_fetch_add(&sums[which].cpu_ns, cpu_ns, __ATOMIC_RELAXED);
}

/* What a function that does nothing would be said to take. */
static void time_readings(void)
{
	for (int i = 0; i < TRIALS; i++) {
		uint64_t cpu_ns = now_ns();
		count(READINGS);
		add(READINGS, now_ns() - cpu_ns);
	}
}

static void __attribute__((constructor)) map_sums(void)
{
	const char *path = getenv("INTERPOSER_SUMS");
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *mapped = mmap(NULL, sizeof(unread), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (mapped != MAP_FAILED)
		sums = mapped;
	close(file);
	time_readings();
}

/* CPU time of the functions here that the present one has called. */
static __thread uint64_t inner_ns;
static __thread int is_open[OPERATIONS];

/* Defines a function that passes its arguments on; objects of libcrypto are opaque here. */
#define CLOCKED(which, name, parameters, arguments)                \
	int name parameters;                                       \
	int name parameters                                        \
	{                                                          \
		static int(*next) parameters;                      \
		if (!next)                                         \
			*(void **)&next = dlsym(RTLD_NEXT, #name); \
		if (is_open[which])                                \
			return next arguments;                     \
		is_open[which] = 1;                                \
		uint64_t outer_ns = inner_ns;                      \
		inner_ns = 0;                                      \
		uint64_t cpu_ns = now_ns();                        \
		int result = next arguments;                       \
		count(which);                                      \
		cpu_ns = now_ns() - cpu_ns;                        \
		add(which, cpu_ns - inner_ns);                     \
		inner_ns = outer_ns + cpu_ns;                      \
		is_open[which] = 0;                                \
		return result;                                     \
	}

CLOCKED(SIGN, EVP_DigestSign,
	(void *context, unsigned char *made, size_t *bytes, const unsigned char *text,
	 size_t length),
	(context, made, bytes, text, length))
CLOCKED(KEYGEN, EVP_PKEY_generate, (void *context, void **key), (context, key))
CLOCKED(KEYGEN, EVP_PKEY_keygen, (void *context, void **key), (context, key))
CLOCKED(KEYGEN, EVP_PKEY_paramgen, (void *context, void **key), (context, key))
CLOCKED(DERIVE, EVP_PKEY_derive, (void *context, unsigned char *secret, size_t *bytes),
	(context, secret, bytes))
CLOCKED(VERIFY, EVP_DigestVerify,
	(void *context, const unsigned char *signature, size_t bytes, const unsigned char *text,
	 size_t length),
	(context, signature, bytes, text, length))
CLOCKED(CERTIFICATE, X509_verify_cert, (void *context), (context))

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stack walker's code, compiled for user mode, in a program that walks its own stack.
 *
 * walked MS: says "ready" and reads the name of a file with its unwind tables: words, rules and
 * ranges, as the kernel's maps hold them, each behind its length in bytes (8 bytes). Then it signs,
 * encrypts and digests for MS milliseconds; a timer's signal interrupts it, and each time its stack
 * is walked by the tables and by backtrace(), which reads .eh_frame with libgcc's own reader.
 * Prints counts, and the first stacks that differ. Needs neither root nor BPF.
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

/* ---- what the walker's headers need ---- */

#define TLSTAX_ACCOUNT_BPF_H /* its place is taken by what follows */
typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t s32;
typedef unsigned long u64;
typedef long s64;
#define bool _Bool
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) value *name
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define BPF_CORE_READ(pointer, field) ((pointer)->field)
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_F_MMAPABLE = 1024 };
static void *look_up(void *map, const void *key);
static long read_user(void *value, u32 size, const void *address);
#define bpf_map_lookup_elem look_up
#define bpf_probe_read_user read_user
#define bpf_core_field_exists(...) 0
#define bpf_core_field_offset(...) 0

#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "../../probes/bpf/arch.h"
#include "../../probes/bpf/unwind_step.bpf.h"

enum { TABLES, RULES, RANGES, PARTS };

static char *part[PARTS];
static u64 part_bytes[PARTS];
static struct unwind_memo memo;
static struct unwind_paths paths;
static u64 stack_from, stack_to; /* of the interrupted function */

static void *look_up(void *map, const void *key)
{
	u64 at = *(const u32 *)key;
	int which = map == &unwind_words ? TABLES : map == &unwind_rules ? RULES : RANGES;
	u64 size = which == TABLES  ? sizeof(struct unwind_chunk)
		   : which == RULES ? sizeof(struct unwind_rule)
				    : sizeof(struct unwind_ranges);

	if (map == &unwind_memos)
		return &memo;
	if (map == &unwind_paths)
		return &paths;
	if (which == RANGES)
		at = 0;
	return (at + 1) * size <= part_bytes[which] ? part[which] + at * size : NULL;
}

static long read_user(void *value, u32 size, const void *address)
{
	if ((u64)address < stack_from || (u64)address + size > stack_to)
		return -1;
	memcpy(value, address, size);
	return 0;
}

/* ---- comparing ---- */

enum { SHOWN = 5, SELF = 8, RED_ZONE = 128, PAGE = 4096 };

static u64 samples, equal, whole, ends[WALK_COUNTS];
static volatile sig_atomic_t shown;

static void compare(const struct walk *walk, u64 pc)
{
	void *other[UNWIND_FRAMES + SELF];
	int count = backtrace(other, UNWIND_FRAMES + SELF), first = 0;

	while (first < count && (u64)other[first] != pc)
		first++;
	bool same = first < count && (u32)(count - first - 1) == walk->stack.count;
	for (u32 i = 0; same && i < walk->stack.count; i++)
		same = walk->stack.frame[i] == (u64)other[first + 1 + i];
	equal += same;
	if (same || shown >= SHOWN)
		return;
	shown++;
	printf("differs %#lx:", pc);
	for (u32 i = 0; i < walk->stack.count; i++)
		printf(" %#lx", walk->stack.frame[i]);
	printf(" |");
	for (int i = first + 1; i < count; i++)
		printf(" %p", other[i]);
	printf("\n");
}

static void on_timer(int number, siginfo_t *info, void *context)
{
	static const int place[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
				      REG_RBP, REG_RSP, REG_R8,	 REG_R9,  REG_R10, REG_R11,
				      REG_R12, REG_R13, REG_R14, REG_R15};
	static struct walk walk;
	const greg_t *reg = ((ucontext_t *)context)->uc_mcontext.gregs;
	int ended = 0;

	(void)number, (void)info;
	reset_walk(&walk);
	for (int i = 0; i < 16; i++)
		walk.reg[i] = (u64)reg[place[i]];
	walk.pc = (u64)reg[REG_RIP];
	walk.sp = walk.reg[7];
	walk.bp = walk.reg[6];
	stack_from = (walk.sp - RED_ZONE) / PAGE * PAGE;
	u64 pc = walk.pc;
	while (!ended)
		ended = walk_step(&walk);
	samples++;
	ends[ended - 1]++;
	whole += ended - 1 == WALK_COMPLETE;
	compare(&walk, pc);
}

/* ---- the work ---- */

static u64 now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

static void work(u64 until)
{
	static unsigned char data[16384], out[16384 + 64];
	EVP_PKEY *key = EVP_RSA_gen(2048);
	unsigned char signature[512];

	while (now_ns() < until) {
		size_t size = sizeof(signature);
		int length;
		EVP_MD_CTX *digest = EVP_MD_CTX_new();
		EVP_DigestSignInit(digest, NULL, EVP_sha256(), NULL, key);
		EVP_DigestSign(digest, signature, &size, data, 64);
		EVP_MD_CTX_free(digest);
		for (int i = 0; i < 40; i++) {
			EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
			EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, data, data);
			EVP_EncryptUpdate(cipher, out, &length, data, sizeof(data));
			EVP_CIPHER_CTX_free(cipher);
			EVP_Digest(data, sizeof(data), signature, NULL, EVP_sha1(), NULL);
		}
	}
	EVP_PKEY_free(key);
}

static void *thread(void *milliseconds)
{
	struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct itimerval timer = {{0, 1000}, {0, 1000}}, stop = {0};
	pthread_attr_t attributes;
	void *address;
	size_t size;

	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstack(&attributes, &address, &size);
	stack_to = (u64)address + size;
	pthread_attr_destroy(&attributes);
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &timer, NULL);
	work(now_ns() + strtoull(milliseconds, NULL, 10) * 1000000);
	setitimer(ITIMER_PROF, &stop, NULL);
	return NULL;
}

int main(int count, char **words)
{
	char name[4096];
	void *warm[4];
	pthread_t one;

	if (count != 2)
		return 2;
	backtrace(warm, 4); /* loads libgcc before the tables are read */
	EVP_PKEY_free(EVP_RSA_gen(512));
	puts("ready");
	fflush(stdout);
	if (scanf("%4095s", name) != 1)
		return 1;
	FILE *file = fopen(name, "r");
	for (int i = 0; file && i < PARTS; i++) {
		if (fread(&part_bytes[i], sizeof(u64), 1, file) != 1)
			return 1;
		part[i] = calloc(1, part_bytes[i] + 8192);
		if (!part[i] || fread(part[i], 1, part_bytes[i], file) != part_bytes[i])
			return 1;
	}
	if (!file)
		return 1;
	fclose(file);
	part_bytes[TABLES] += 4096; /* the last page is not full */
	pthread_create(&one, NULL, thread, words[1]);
	pthread_join(one, NULL);
	printf("samples %lu equal %lu whole %lu\n", samples, equal, whole);
	for (int i = 0; i < WALK_COUNTS; i++)
		printf("end %d %lu\n", i, ends[i]);
	return 0;
}

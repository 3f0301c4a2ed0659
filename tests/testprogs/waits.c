// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time of a wait whose stacks were walked (probes/bpf/waits.bpf.h, compiled for this machine):
 * it prints what is added for one of 5 us that stands for eight, and for one whose end was reckoned
 * to lie before its beginning, as it may where the kernel reported no wake-up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wtype-limits"

/* What waits.bpf.h needs of the kernel and of the other programs. */
#define TLSTAX_PHASES_BPF_H
#define TLSTAX_UNWIND_BPF_H
#define SEC(name)
#define __noinline __attribute__((noinline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) value *name
#define likely(condition) (condition)
#define unlikely(condition) (condition)
#define BPF_CORE_READ(...) 0
#define BPF_CORE_READ_BITFIELD(...) 0
#define SYSCALL_NUMBER(regs) ((void)(regs), -1)
#define SYSCALL_ARG0(regs) ((void)(regs), 0)
#define SYSCALL_ARG1(regs) ((void)(regs), 0)
#define REGS_SP(regs) ((void)(regs), 0)
#define walk_kernel(ctx, walker) ((void)(ctx), -1)
#define walk_waiting() (-1)
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_STACK_TRACE = 7 };
enum { BPF_F_USER_STACK = 1 << 8, BPF_NOEXIST = 1, WALKER_WAIT = 0 };

#include "../../probes/bpf/ledger.h"

struct task_struct {
	s32 pid;
};
struct files_struct {
	int count;
};
struct fdtable {
	int count;
};
struct socket {
	int state;
};
struct pt_regs {
	u64 sp;
};

static struct config config;
static struct control control;
static struct {
	u32 enabled;
} unwind;
static struct offcpu_value sum;
static bool is_there;

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	(void)map, (void)key;
	return is_there ? &sum : NULL;
}

static int bpf_map_update_elem(void *map, const void *key, const void *value, u64 flags)
{
	(void)map, (void)key, (void)flags;
	sum = *(const struct offcpu_value *)value;
	is_there = true;
	return 0;
}

static int count_loss(u32 kind)
{
	return (int)kind;
}

static s64 bpf_get_stackid(void *ctx, void *map, u64 flags)
{
	(void)ctx, (void)map, (void)flags;
	return -1;
}

static struct task_struct *bpf_get_current_task_btf(void)
{
	return NULL;
}

static void *bpf_task_pt_regs(struct task_struct *task)
{
	return task;
}

static bool is_io_worker(struct task_struct *task)
{
	return !task;
}

static bool is_open(u64 sp, u64 returns, u64 now)
{
	return sp > now && returns;
}

static u32 bpf_get_prandom_u32(void)
{
	return 0;
}

static long bpf_probe_read_kernel(void *to, u32 size, const void *from)
{
	(void)to, (void)size, (void)from;
	return -1;
}

#include "../../probes/bpf/waits.bpf.h"

int main(void)
{
	struct thread_slot slot = {.wait_start_ns = 100000};

	walk_wait(NULL, &slot); /* the other programs are used */
	classify_current(&slot, NULL);
	socket_of(0, 0);
	slot.wait_weight = 8;
	slot.flags |= FLAG_WAIT_STACK;
	finish_wait(&slot, 105000);
	printf("wait %llu %llu\n", (unsigned long long)sum.wait_count,
	       (unsigned long long)sum.time_ns);
	slot.flags |= FLAG_WAIT_STACK;
	finish_wait(&slot, 99000);
	printf("with-one-that-ended-early %llu %llu\n", (unsigned long long)sum.wait_count,
	       (unsigned long long)sum.time_ns);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two CPUs that make an account at once (probes/bpf/threads.bpf.h, compiled for this machine):
 * between what a program reads and what it stores, another CPU does the same. It prints how many
 * accounts came of that, and how many slots are in use.
 *
 * And a thread that leaves its CPU while the task iterator (lifecycle.bpf.h) makes its account or
 * lets it go on, which the switches' own program does not see: the state that it is then in.
 *
 * On a real machine the two must meet within a fraction of a microsecond.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;

/* What both need of the kernel and of the other programs. */
#define TLSTAX_ACCOUNT_BPF_H
#define TLSTAX_SCHEDULER_BPF_H
#define TLSTAX_KTYPES_H
#define __BPF_HELPERS__
#define SEC(name)
#define __noinline __attribute__((noinline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) value *name
#define bpf_core_field_exists(field) 1
#define HAS_THREAD_POINTER(task) 0
#define THREAD_POINTER(task) 0
#define FAULT_NO_ACCOUNT(task) false
#define FAULT_KEEPS_CONNECTION() false
#define TASK_EXITING 0x4
#define TASK_NEW 0x800
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_TASK_STORAGE = 29 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

struct task_struct {
	s32 pid, tgid, on_cpu;
	u32 flags, state;
	u64 nvcsw, nivcsw, start_time;
	char comm[16];
	struct {
		u64 sum_exec_runtime;
	} se;
	struct {
		u64 run_delay;
	} sched_info;
	u32 mark; /* its storage */
};

struct bpf_iter__task {
	struct task_struct *task;
};

struct wait {
	u32 state;
	s32 syscall;
};

static void *bpf_map_lookup_elem(void *map, const u32 *key);
static void *bpf_task_storage_get(void *map, struct task_struct *task, void *value, u64 flags);
static void another_cpu(const void *place);

#define __sync_val_compare_and_swap(place, expected, desired)  \
	({                                                     \
		__typeof__(place) where = (place);             \
		__typeof__(*(place)) wanted = (expected), was; \
		another_cpu(where);                            \
		was = *where;                                  \
		if (was == wanted)                             \
			*where = (__typeof__(was))(desired);   \
		was;                                           \
	})

#include "../../probes/bpf/slots.bpf.h"

enum { SLOTS = 8 };

static struct config config = {.slots = SLOTS};
static struct control control;
static struct lifecycle lifecycle;

static void count_loss(u32 kind)
{
	(void)kind;
}

#include "../../probes/bpf/threads.bpf.h"

static bool is_target(struct task_struct *one)
{
	return one->tgid == config.tgid;
}

static bool is_io_worker(struct task_struct *one)
{
	return one->flags & 0x10;
}

static u64 bpf_ktime_get_ns(void)
{
	return 1;
}

static u32 task_state(struct task_struct *one)
{
	return one->state;
}

static u32 innermost_phase(struct thread_slot *slot)
{
	return slot->base;
}

static void classify_wait(struct task_struct *one, struct thread_slot *slot, struct wait *wait)
{
	(void)one, (void)slot;
	wait->state = STATE_BLOCKED_FUTEX;
}

static void charge(struct thread_slot *slot, u64 now);
static void nothing(struct thread_slot *slot, ...)
{
	(void)slot;
}

#define confirm_pending nothing
#define end_command nothing
#define put_aside nothing
#define finished nothing
#define came_unseen nothing
#define read_last_counts(task, slot, now) nothing(slot)

#include "../../probes/bpf/lifecycle.bpf.h"

static struct thread_slot room[SLOTS];
static u64 recycled[1 + SLOTS];
static struct task_struct task, second = {.pid = 2};
static struct task_struct *others; /* whose account the other CPU makes */
static const void *contended;	   /* it does so before this is swapped */
static u32 accounts_count;

static void *bpf_map_lookup_elem(void *map, const u32 *key)
{
	if (map == (void *)&slots)
		return *key < SLOTS ? &room[*key] : NULL;
	return &recycled[*key];
}

static void *bpf_task_storage_get(void *map, struct task_struct *one, void *value, u64 flags)
{
	(void)map, (void)value, (void)flags;
	return &one->mark;
}

static void another_cpu(const void *place)
{
	if (place != contended || (place == &task.mark && task.mark == MARK_MAKING))
		return; /* the mark: only who has read it and not changed it yet */
	contended = NULL;
	accounts_count += open_account(others, 1, STATE_RUNNABLE, PHASE_BACKGROUND) != NULL;
}

/* The same thread, or two; the other CPU comes before a number is swapped. */
static void meet(const char *what, struct task_struct *other, const void *place, bool from_recycled)
{
	memset(&lifecycle, 0, sizeof(lifecycle));
	memset(recycled, 0, sizeof(recycled));
	task = (struct task_struct){.pid = 1};
	second.mark = 0;
	if (from_recycled)
		recycled[0] = 2, recycled[1] = 5, recycled[2] = 6;
	others = other;
	contended = place;
	accounts_count = 0;
	bool is_mine = open_account(&task, 1, STATE_RUNNABLE, PHASE_BACKGROUND) != NULL;
	accounts_count += is_mine;
	printf("%s %u %llu %s\n", what, accounts_count,
	       (unsigned long long)(lifecycle.fresh_count + lifecycle.reused_count),
	       contended || task.mark == second.mark ? "wrong" : "right");
}

static bool leaves; /* the CPU, while its account is not live */

static void charge(struct thread_slot *slot, u64 now)
{
	(void)slot, (void)now;
	if (leaves)
		task.on_cpu = 0, task.state = 1;
}

/* A thread with this flag runs when the iterator comes to it; the phase that it is in then. */
static void continues(const char *what, bool leaves_now, u32 flag)
{
	struct bpf_iter__task context = {&task};
	struct thread_slot *slot = &room[0];

	memset(&lifecycle, 0, sizeof(lifecycle));
	memset(recycled, 0, sizeof(recycled));
	memset(slot, 0, sizeof(*slot));
	task = (struct task_struct){.pid = 1, .on_cpu = 1};
	leaves = false;
	control.paused = 1;
	each_thread(&context);
	slot->flags = flag;
	control.paused = 0;
	leaves = leaves_now;
	each_thread(&context);
	printf("%s %s %s\n", what,
	       slot->state == STATE_ON_CPU	    ? "on-cpu"
	       : slot->state == STATE_BLOCKED_FUTEX ? "asleep"
						    : "wrong",
	       slot->owner == PHASE_IDLE ? "idle" : "busy");
}

int main(void)
{
	meet("one-thread", &task, &task.mark, false);
	meet("two-threads", &second, &task.mark, false);
	meet("two-fresh", &second, &lifecycle.fresh_count, false);
	meet("two-recycled", &second, &lifecycle.reused_count, true);
	continues("stays", false, 0);
	continues("leaves", true, 0);
	continues("leaves-parked", true, FLAG_PARK);
	on_fork((u64[]){(u64)&task, (u64)&task}); /* the other programs are used */
	on_exec((u64[]){(u64)&task});
	on_exit_thread((u64[]){(u64)&task});
	return 0;
}

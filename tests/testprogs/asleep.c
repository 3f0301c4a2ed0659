// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reference for the time that a thread waits for a CPU (probes/bpf/closure.bpf.h), compiled for
 * this machine: what it is for threads that slept and waited as told here. It prints the
 * milliseconds that the kernel's run delay says, and those that the reference says.
 *
 * Since Linux 6.12 a thread that sleeps may be counted as waiting (docs/how-it-measures.md). That
 * happens once in some dozen recordings, so no test can wait for it.
 */
#include <stdint.h>
#include <stdio.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;
#define bool _Bool

/* What closure.bpf.h needs of the kernel and of the other programs. */
#define TLSTAX_ACCOUNT_BPF_H
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) value *name
#define bpf_core_field_exists(field) 1
#define likely(condition) (condition)
#define BPF_CORE_READ(pointer, field) ((pointer)->field)
#define FAULT_SEES_READING(now)
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_F_MMAPABLE = 1 << 10 };

#include "../../probes/bpf/ledger.h"

struct signal_struct {
	u64 nvcsw, nivcsw;
};

struct task_struct {
	s32 pid, tgid, on_cpu;
	u64 nvcsw, nivcsw;
	u32 state;
	struct {
		u64 exec_start, sum_exec_runtime;
	} se;
	struct {
		u64 run_delay, last_arrival, last_queued;
	} sched_info;
	struct signal_struct *signal;
};

struct bpf_iter_meta {
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

static struct cpu_counts cpu = {.queue_offset_ns = 5000, .clock_offset_ns = 5000};
static struct config config;
static struct thread_slot slot;
static struct task_struct task;
static u64 now; /* of the programs' clock; the scheduler's is queue_offset_ns behind it */

static struct cpu_counts *find_cpu(u32 number)
{
	(void)number;
	return &cpu;
}

static u64 bpf_ktime_get_ns(void)
{
	return now;
}

static void *bpf_map_lookup_elem(void *map, const u32 *key)
{
	(void)map, (void)key;
	return NULL;
}

static struct thread_slot *find_slot(struct task_struct *one)
{
	(void)one;
	return &slot;
}

static u64 task_state(struct task_struct *one)
{
	return one->state;
}

static u32 task_cpu(struct task_struct *one)
{
	(void)one;
	return 0;
}

#include "../../probes/bpf/closure.bpf.h"

static const u64 ms = 1000000;

/* It blocks, as switch_out() sees it. */
static void blocks(void)
{
	task.on_cpu = 0;
	task.state = 1;
	task.sched_info.last_queued = 0;
	slot.block_wait_ns = task.sched_info.run_delay;
	slot.state = STATE_BLOCKED_OTHER;
}

/* The scheduler moves it to another CPU while it sleeps, and stamps it as waiting from now on. */
static void is_stamped(void)
{
	if (task.sched_info.last_queued)
		task.sched_info.run_delay +=
			now - cpu.queue_offset_ns - task.sched_info.last_queued;
	task.sched_info.last_queued = now - cpu.queue_offset_ns;
}

/* The wake-up, as on_wakeup() sees it; a stamp that is there stays. */
static void wakes(void)
{
	if (!task.sched_info.last_queued)
		task.sched_info.last_queued = now - cpu.queue_offset_ns;
	task.state = 0;
	slot.state = STATE_RUNNABLE;
	woken_from_sleep(&task, &slot, now);
}

/* It gets a CPU: the scheduler adds the time since the stamp to its run delay. */
static void runs(void)
{
	task.sched_info.run_delay += now - cpu.queue_offset_ns - task.sched_info.last_queued;
	task.sched_info.last_queued = 0;
	task.on_cpu = 1;
	slot.state = STATE_ON_CPU;
}

static void told(const char *what)
{
	read_counts(&task, &slot, now);
	printf("%s %llu %llu\n", what, (unsigned long long)(task.sched_info.run_delay / ms),
	       (unsigned long long)(slot.counts.wait_ns / ms));
}

int main(void)
{
	now = 1000 * ms;
	blocks();
	now += 400 * ms;
	wakes();
	now += 3 * ms;
	told("waiting");
	runs();
	told("waited");

	blocks();
	now += 100 * ms;
	is_stamped();
	now += 300 * ms;
	told("stamped");
	wakes();
	now += 2 * ms;
	told("stamped, woken");
	runs();
	told("stamped, ran");

	blocks();
	now += 100 * ms;
	is_stamped();
	now += 200 * ms;
	is_stamped(); /* the second move adds what the first stamped */
	now += 500 * ms;
	told("moved twice");
	wakes();
	now += 4 * ms;
	runs();
	told("moved twice, ran");

	each_counts(&(struct bpf_iter__task){&(struct bpf_iter_meta){0}, &task}); /* it is used */
	read_last_counts(&task, &slot, now);
	count_stay(&task, &slot, &cpu, 0);

	/* Two stays of 5 ms: of one the hypervisor had the CPU before the switch to it was told. */
	slot.sched_cpu_ns = task.se.sum_exec_runtime = 0;
	task.se.sum_exec_runtime += 5 * ms;
	count_stay(&task, &slot, &cpu, -(s64)(8 * ms));
	u64 first_ns = cpu.target_cpu_ns;
	slot.sched_cpu_ns = task.se.sum_exec_runtime;
	task.se.sum_exec_runtime += 5 * ms;
	count_stay(&task, &slot, &cpu, 0);
	printf("stays %llu %llu\n", (unsigned long long)(first_ns / ms),
	       (unsigned long long)(cpu.target_cpu_ns / ms));
	return 0;
}

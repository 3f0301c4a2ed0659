/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types that the programs access, with only the fields in use.
 *
 * CO-RE relocates every access against the running kernel's BTF, so neither kernel headers nor a
 * generated vmlinux.h is needed. Field order and sizes here are irrelevant. A struct has the fields
 * of all kernels: libbpf looks through all of the kernel's types for each struct that is declared.
 */
#ifndef TLSTAX_KTYPES_H
#define TLSTAX_KTYPES_H

/* bpf_tracing.h then uses the kernel's register names (di, si, ...). */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* Code that hardly ever runs is put behind the code that does: less of it is fetched into caches.
 */
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_F_USER_STACK = 1 << 8 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1 };

#include "arch.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct inode {
	unsigned short i_mode;
};

struct in6_addr {
	u8 bytes[16];
};

struct sock_common {
	u16 skc_num; /* local port */
	u16 skc_family;
	u8 skc_state;
	__be32 skc_daddr;
	struct in6_addr skc_v6_daddr; /* CONFIG_IPV6 */
};

struct sock {
	struct sock_common __sk_common;
};

struct unix_address;

struct unix_sock {
	struct unix_address *addr;
};

struct socket {
	struct sock *sk;
};

struct file {
	struct inode *f_inode;
	void *private_data; /* of a socket's file: the struct socket */
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

/* A CPU's run queue, with its clocks at the scheduler's last look at them. */
struct rq {
	u64 clock;
	u64 clock_task; /* without what the hypervisor stole, and interrupts where they are timed */
};

struct cfs_rq {
	struct rq *rq; /* CONFIG_FAIR_GROUP_SCHED, like the field below */
};

struct sched_entity {
	struct cfs_rq *cfs_rq; /* of the CPU that the task is on */
	u64 exec_start;	       /* when sum_exec_runtime was last brought up to date */
	u64 sum_exec_runtime;
};

struct thread_info {
	unsigned int cpu; /* since 5.16 */
};

/* Without fields on kernels that do not have CONFIG_SCHED_INFO. */
struct sched_info {
	u64 run_delay;	  /* time spent waiting for a CPU */
	u64 last_arrival; /* when it last came onto a CPU */
	u64 last_queued;  /* when it last began to wait; 0: it does not */
};

/* Of a process; of its threads that ended. */
struct signal_struct {
	unsigned long nvcsw, nivcsw;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	long state;	  /* its name until 5.13 */
	unsigned int cpu; /* until 5.15 */
	unsigned int flags;
	unsigned int on_cpu; /* u8 from 7.2 on: libbpf fits the width of unsigned fields only */
	int pid;
	int tgid;
	unsigned int in_iowait : 1;
	u64 start_time;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned long nvcsw, nivcsw; /* voluntary and involuntary switches */
	struct signal_struct *signal;
	struct files_struct *files;
	struct thread_struct thread; /* arch.h */
	struct mm_struct *mm;
	struct uprobe_task *utask;
};

#pragma clang attribute pop

/* Contexts of iterators: ABI, not relocated. */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};

#endif

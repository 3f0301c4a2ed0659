/* SPDX-License-Identifier: GPL-2.0-only */
/* What a thread that leaves the CPU waits for, and its stacks. */
#ifndef TLSTAX_WAITS_BPF_H
#define TLSTAX_WAITS_BPF_H

#include "phases.bpf.h"
#include "unwind.bpf.h"

enum {
	FILE_TYPE_MASK = 0170000,
	FILE_SOCKET = 0140000,
	FILE_REGULAR = 0100000,
	FILE_BLOCK = 060000
};
enum { EEXIST = 17, ENOMEM = 12 };
enum { FUTEX_COMMAND_MASK = 0x7f, FUTEX_OP_WAIT_BITSET = 9 };

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 32768);
	__uint(key_size, sizeof(u32));
	__uint(value_size, STACK_DEPTH * sizeof(u64));
} stacks SEC(".maps");

/* Stacks whose bucket in the first map was taken by another one. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(u32));
	__uint(value_size, STACK_DEPTH * sizeof(u64));
} more_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct offcpu_key);
	__type(value, struct offcpu_value);
} offcpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sample_key);
	__type(value, u64);
} samples SEC(".maps");

/* Why there is no stack id. */
__noinline int count_lost_stack(u64 flags, s64 error)
{
	if (error == -EEXIST || error == -ENOMEM)
		return count_loss(LOSS_STACK_MAP_FULL);
	return count_loss(flags & BPF_F_USER_STACK ? LOSS_USER_STACK_FAILED
						   : LOSS_KERNEL_STACK_FAILED);
}

/* A stack id, or -1 with the loss counted. */
static __always_inline s32 walk_stack(void *ctx, u64 flags)
{
	if (flags & BPF_F_USER_STACK && config.no_user_stacks)
		return -1; /* not a loss: preflight says so in the capture */
	s64 id = bpf_get_stackid(ctx, &stacks, flags);
	if (id >= 0)
		return (s32)id;
	if (id == -EEXIST) { /* another stack has the bucket */
		id = bpf_get_stackid(ctx, &more_stacks, flags);
		if (id >= 0)
			return (s32)id | MORE_STACKS;
	}
	count_lost_stack(flags, id);
	return -1;
}

/* Else by frame pointers, in the kernel's own code. */
static __always_inline bool walks_by_tables(void)
{
	return unwind.enabled && !config.no_user_stacks;
}

/* Where the files of a task are: an argument of global functions, which take no task. */
static __always_inline u64 files_of(struct task_struct *task)
{
	return (u64)BPF_CORE_READ(task, files);
}

static __always_inline struct file *file_of(u64 task_files, u32 descriptor)
{
	struct fdtable *table = BPF_CORE_READ((struct files_struct *)task_files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = NULL;
	if (table && descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), files + descriptor);
	return file;
}

/* read() and write() block on the network or on a disk: the descriptor's inode shows which. */
__noinline u32 wait_by_file(u64 task_files, u32 descriptor)
{
	struct file *file = file_of(task_files, descriptor);
	if (!file)
		return STATE_BLOCKED_OTHER;
	u32 type = BPF_CORE_READ(file, f_inode, i_mode) & FILE_TYPE_MASK;
	if (type == FILE_SOCKET)
		return STATE_BLOCKED_NETWORK;
	if (type == FILE_REGULAR || type == FILE_BLOCK)
		return STATE_BLOCKED_DISK;
	return STATE_BLOCKED_OTHER;
}

/* The socket behind a descriptor, as sock_recv_length passes it. */
__noinline u64 socket_of(u64 task_files, u32 descriptor)
{
	struct socket *socket = BPF_CORE_READ(file_of(task_files, descriptor), private_data);
	return socket ? (u64)BPF_CORE_READ(socket, sk) : 0;
}

struct wait {
	u32 state;
	u32 kind;
	s32 syscall;
	bool condition; /* a futex wait as condition variables use it */
};

/* What a futex wait is for, by the function that the thread entered to wait. */
static __always_inline u32 futex_state(struct thread_slot *slot, u64 sp)
{
	if (!slot || !slot->wait_sp)
		return STATE_BLOCKED_FUTEX;
	if (is_open(slot->wait_sp, slot->wait_returns, sp))
		return slot->wait_as;
	slot->wait_sp = 0;
	return STATE_BLOCKED_FUTEX;
}

/* `task` is off the CPU and not runnable: its system call shows what it waits for. */
static __always_inline void classify_wait(struct task_struct *task, struct thread_slot *slot,
					  struct wait *wait)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	s64 number = is_io_worker(task) ? -1 : SYSCALL_NUMBER(regs);
	u32 kind = WAIT_OTHER;

	wait->condition = false;
	wait->syscall = number >= 0 && number < MAX_SYSCALLS ? (s32)number : -1;
	if (wait->syscall >= 0)
		kind = config.wait_kind[number & (MAX_SYSCALLS - 1)];
	wait->state = STATE_BLOCKED_OTHER;
	wait->kind = kind;
	if (likely(kind == WAIT_NETWORK || kind == WAIT_RECEIVE || kind == WAIT_POLL ||
		   kind == WAIT_EPOLL ||
		   (kind == WAIT_READ && slot && slot->flags & FLAG_AWAIT &&
		    !slot->pending.kind))) {
		/* While it certainly awaits a command, it can only wait for the socket. */
		wait->state = STATE_BLOCKED_NETWORK;
	} else if (BPF_CORE_READ_BITFIELD(task, in_iowait) || kind == WAIT_DISK) {
		wait->state = STATE_BLOCKED_DISK;
	} else if (kind == WAIT_FUTEX) {
		wait->condition = (SYSCALL_ARG1(regs) & FUTEX_COMMAND_MASK) == FUTEX_OP_WAIT_BITSET;
		wait->state = futex_state(slot, REGS_SP(regs));
	} else if (kind == WAIT_BY_FILE || kind == WAIT_READ) {
		wait->state = wait_by_file(files_of(task), SYSCALL_ARG0(regs));
	}
}

/* The same for the current thread. */
__noinline int classify_current(struct thread_slot *slot, struct wait *wait)
{
	if (slot && wait)
		classify_wait(bpf_get_current_task_btf(), slot, wait);
	return 0;
}

/* Idle waits are known by their phase; of the others a share is walked, weighted by its inverse. */
static __always_inline void walk_wait(void *ctx, struct thread_slot *slot)
{
	u32 mask = control.offcpu_mask;
	slot->flags &= ~FLAG_WAIT_STACK;
	if (likely(slot->owner == PHASE_IDLE || bpf_get_prandom_u32() & mask))
		return;
	slot->wait_weight = mask + 1;
	slot->wait_kernel_stack =
		walks_by_tables() ? walk_kernel(ctx, WALKER_WAIT) : walk_stack(ctx, 0);
	if (is_io_worker(bpf_get_current_task_btf()))
		slot->wait_user_stack = -1; /* it has none */
	else
		slot->wait_user_stack =
			walks_by_tables() ? walk_waiting() : walk_stack(ctx, BPF_F_USER_STACK);
	slot->flags |= FLAG_WAIT_STACK;
}

/* The wait whose stacks were walked has ended. */
__noinline int add_wait(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	slot->flags &= ~FLAG_WAIT_STACK;
	struct offcpu_key key = {
		.phase = slot->owner,
		.state = slot->state,
		.syscall = slot->wait_syscall,
		.user_stack = slot->wait_user_stack,
		.kernel_stack = slot->wait_kernel_stack,
	};
	/* Where no wake-up was seen it is reckoned, and may lie before the switch that blocked. */
	s64 waited = (s64)(now - slot->wait_start_ns);
	u64 spent = waited > 0 ? (u64)waited * slot->wait_weight : 0;
	struct offcpu_value *value = bpf_map_lookup_elem(&offcpu, &key);
	if (!value) {
		struct offcpu_value first = {.wait_count = slot->wait_weight, .time_ns = spent};
		if (!bpf_map_update_elem(&offcpu, &key, &first, BPF_NOEXIST))
			return 0;
		value = bpf_map_lookup_elem(&offcpu, &key); /* another CPU added it first */
	}
	if (value) {
		__sync_fetch_and_add(&value->wait_count, slot->wait_weight);
		__sync_fetch_and_add(&value->time_ns, spent);
	} else {
		count_loss(LOSS_OFFCPU_MAP_FULL);
	}
	return 0;
}

static __always_inline void finish_wait(struct thread_slot *slot, u64 now)
{
	if (unlikely(slot->flags & FLAG_WAIT_STACK))
		add_wait(slot, now);
}

#endif

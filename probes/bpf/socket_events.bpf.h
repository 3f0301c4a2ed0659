/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Receives and sends, by tracepoints or at the returns of the kernel's functions.
 */
#ifndef TLSTAX_SOCKET_EVENTS_BPF_H
#define TLSTAX_SOCKET_EVENTS_BPF_H

#include "scheduler.bpf.h"

/* The current thread's slot, if it belongs to the target and is recorded. */
static __always_inline struct thread_slot *socket_user(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_target(task))
		return NULL;
	struct cpu_counts *cpu = find_cpu(bpf_get_smp_processor_id());
	count_event(cpu);
	struct thread_slot *slot = running_slot(task, cpu);
	return slot && slot->status == THREAD_LIVE ? slot : NULL;
}

/* The time, and what is to be seen to before a socket's event of this thread; 0: too late. */
static __always_inline u64 socket_used(struct thread_slot *slot)
{
	u64 now = bpf_ktime_get_ns();
	if (unlikely(is_abandoned(now)))
		return 0;
	if (unlikely(slot->state != STATE_ON_CPU))
		came_unseen(slot, bpf_get_current_task_btf(), now);
	if (unlikely(may_have_returned(slot)))
		end_returned(slot, bpf_get_current_task_btf(), now);
	return now;
}

/* A receive returns: data, the end of the stream, or no data yet. */
static __always_inline void receive_ends(u64 socket, s32 result, u32 flags)
{
	struct thread_slot *slot = socket_user();
	if (!slot || (config.flow && is_rest(slot, socket, result, flags)))
		return;
	u64 now = socket_used(slot);
	if (!now)
		return;
	if (config.flow)
		flow_received(slot, socket, result, flags, now);
	else
		received(slot, socket, result, now);
}

static __always_inline void send_ends(u64 socket, s32 result)
{
	struct thread_slot *slot = socket_user();
	u64 now = slot ? socket_used(slot) : 0;
	if (!now)
		return;
	if (config.flow) {
		flow_sent(slot, socket, result, now);
		return;
	}
	count_send(); /* hits are measured at level record only */
	sent(slot, socket, result, now);
}

SEC("tp_btf/sock_recv_length")
int on_receive(u64 *ctx)
{
	receive_ends(ctx[0], (s32)ctx[1], (u32)ctx[2]);
	return 0;
}

SEC("tp_btf/sock_send_length")
int on_send(u64 *ctx)
{
	send_ends(ctx[0], (s32)ctx[1]);
	return 0;
}

/*
 * Without these tracepoints: the functions that each kind of socket has for it, when they return.
 * A call that was under way when this was attached is not seen. The recorder has them loaded.
 */
static __noinline int receive_returns(u64 *ctx)
{
	receive_ends((u64)((struct socket *)ctx[0])->sk, (s32)ctx[4], (u32)ctx[3]);
	return 0;
}

static __noinline int send_returns(u64 *ctx)
{
	send_ends((u64)((struct socket *)ctx[0])->sk, (s32)ctx[3]);
	return 0;
}

SEC("?fexit/inet_recvmsg")
int inet_received(u64 *ctx)
{
	return receive_returns(ctx);
}

SEC("?fexit/inet6_recvmsg")
int inet6_received(u64 *ctx)
{
	return receive_returns(ctx);
}

SEC("?fexit/unix_stream_recvmsg")
int unix_received(u64 *ctx)
{
	return receive_returns(ctx);
}

SEC("?fexit/inet_sendmsg")
int inet_sent(u64 *ctx)
{
	return send_returns(ctx);
}

SEC("?fexit/inet6_sendmsg")
int inet6_sent(u64 *ctx)
{
	return send_returns(ctx);
}

SEC("?fexit/unix_stream_sendmsg")
int unix_sent(u64 *ctx)
{
	return send_returns(ctx);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Commands without a probe: level `flow`.
 *
 * A command begins when a receive returns data on the client's socket, and ends at the next receive
 * there: for the ledger when that is tried or waited for, for its latency at its last send. While
 * the thread waits for it, it is idle; everything else of an open connection is `command`, which
 * includes decrypting and encrypting.
 *
 * A command may have no answer, and a message may come in parts. Most servers read the head of a
 * packet or record first, and ask for no more bytes than there must be: so the sizes tell whether a
 * message is whole. Only then a wait, or another head, ends a command that was not answered. Else
 * it begins anew with the data that come after the wait. A packet as long as one can be goes on in
 * another one, and is not whole.
 *
 * The client's socket is one whose local port the target listens on, or an accepted Unix socket.
 * Others (to another server, a directory, a replica's source) never delimit.
 */
#ifndef TLSTAX_FLOW_BPF_H
#define TLSTAX_FLOW_BPF_H

#include "sockets.bpf.h"

enum { PEEKS = 2 };						  /* MSG_PEEK */
enum { PACKET_HEAD_BYTES = 4, RECORD_HEAD_BYTES = 5 };		  /* of MySQL's protocol, of TLS */
enum { RECORD_ALONE_BYTES = 1024, PACKET_MOST_BYTES = 0xffffff }; /* of their bodies */

static __always_inline bool is_from_client(struct thread_slot *slot, u64 socket)
{
	return socket && (likely(socket == slot->client_socket) || is_accepted(socket));
}

/*
 * A connection is open, and no function is at work in it that has a phase of its own. A thread that
 * was not seen to connect is one of a connection if it answers where it receives: those that only
 * take messages (acknowledgements of replicas) are not.
 */
static __always_inline bool may_serve(struct thread_slot *slot, u64 socket)
{
	return slot->depth == 0 && slot->base != PHASE_CONNECT && slot->base != PHASE_DISCONNECT &&
	       (slot->base != PHASE_BACKGROUND || slot->sent_socket == socket);
}

static __always_inline void serve(struct thread_slot *slot, u64 now)
{
	if (likely(slot->base == PHASE_COMMAND))
		return;
	charge(slot, now);
	slot->base = PHASE_COMMAND;
	slot->base_start_ns = now;
	settle(slot, now);
}

/*
 * What was received last. It is unknown whether more will come of what was not read head first
 * (yaSSL takes all that is there), or by a call whose size is not known, and of large records:
 * clients send a long command in records as large as their buffers.
 */
enum message {
	MESSAGE_UNKNOWN,
	MESSAGE_WHOLE,
	MESSAGE_PACKET_HEAD,
	MESSAGE_PACKET_PART,
	MESSAGE_RECORD_HEAD,
	MESSAGE_RECORD_PART,
};

/* How many bytes the current thread asked for; 0: unknown. */
static __always_inline u64 asked_bytes(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	s64 number = SYSCALL_NUMBER(regs);
	return number == CALL_READ || number == CALL_RECEIVE ? SYSCALL_ARG2(regs) : 0;
}

/* Note what was received now. Returns whether a new message begins. */
static __always_inline bool note_message(struct thread_slot *slot, u32 received)
{
	u64 asked = asked_bytes();
	u32 before = slot->message, now = MESSAGE_UNKNOWN;
	bool is_short = received < asked;

	if (before >= MESSAGE_PACKET_HEAD && asked) {
		bool is_record = before >= MESSAGE_RECORD_HEAD;
		if (before == MESSAGE_PACKET_PART || before == MESSAGE_RECORD_PART)
			received += slot->message_bytes;
		slot->message_bytes = received;
		if (is_short)
			now = is_record ? MESSAGE_RECORD_PART : MESSAGE_PACKET_PART;
		else if (is_record ? received < RECORD_ALONE_BYTES : received != PACKET_MOST_BYTES)
			now = MESSAGE_WHOLE;
	} else if (received == asked && received == RECORD_HEAD_BYTES) {
		now = MESSAGE_RECORD_HEAD;
	} else if (received == asked && received == PACKET_HEAD_BYTES) {
		now = MESSAGE_PACKET_HEAD;
	}
	slot->message = now;
	return before == MESSAGE_WHOLE && now >= MESSAGE_PACKET_HEAD;
}

static __always_inline void begin_command(struct thread_slot *slot, u64 now, u64 socket)
{
	serve(slot, now);
	serve_connection(slot, false);
	slot->flags &= ~(FLAG_POOL | FLAG_RECEIVES | FLAG_RECEIVED);
	slot->flags |= FLAG_BEGUN;
	slot->client_socket = socket;
	slot->base_start_ns = now;
	slot->phase_event_ns = now;
}

/* The thread tries to receive from its client, or waits for it. */
__noinline int await_command(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	serve(slot, now);
	if (slot->flags & FLAG_ANSWERED || slot->message == MESSAGE_WHOLE)
		end_command(slot, now);
	slot->flags |= FLAG_AWAIT;
	return 0;
}

/* It awaits a command already. */
static __always_inline bool awaits(struct thread_slot *slot)
{
	return slot->flags & FLAG_AWAIT && slot->base == PHASE_COMMAND;
}

/*
 * The rest of a message whose head has begun a command, taken without a wait: nothing is charged or
 * counted for it, so nobody need ask for the time. Returns whether it was that, and is noted.
 */
static __always_inline bool is_rest(struct thread_slot *slot, u64 socket, s32 result, u32 flags)
{
	u32 begun = FLAG_BEGUN | FLAG_ANSWERED | FLAG_AWAIT | FLAG_RECEIVES;

	if ((slot->flags & begun) != FLAG_BEGUN || slot->message < MESSAGE_PACKET_HEAD ||
	    socket != slot->client_socket || result <= 0 || flags & PEEKS || slot->depth ||
	    slot->base != PHASE_COMMAND || slot->state != STATE_ON_CPU)
		return false;
	note_message(slot, result);
	return true;
}

static __always_inline void flow_received(struct thread_slot *slot, u64 socket, s32 result,
					  u32 flags, u64 now)
{
	bool is_more, is_begun, waited;

	if (!may_serve(slot, socket) || !is_from_client(slot, socket))
		return;
	if (unlikely(slot->flags & FLAG_RECEIVES)) {
		if (result > 0)
			slot->flags |= FLAG_RECEIVED;
		return;
	}
	if (result <= 0) { /* not yet, or never again */
		if (!awaits(slot))
			await_command(slot, now);
		return;
	}
	waited = slot->flags & FLAG_AWAIT;
	slot->flags &= ~FLAG_AWAIT;
	is_begun = (slot->flags & (FLAG_BEGUN | FLAG_ANSWERED)) == FLAG_BEGUN;
	if (!is_begun) /* what was only looked at comes again */
		slot->message = flags & PEEKS ? MESSAGE_UNKNOWN : MESSAGE_WHOLE;
	is_more = flags & PEEKS || !note_message(slot, result);
	if (is_more && is_begun) {
		if (waited)
			slot->base_start_ns = now;
		return;
	}
	end_command(slot, now); /* the next one was there already */
	begin_command(slot, now, socket);
}

static __always_inline void flow_sent(struct thread_slot *slot, u64 socket, s32 result, u64 now)
{
	u32 file = FLAG_RECEIVES | FLAG_RECEIVED;

	if (slot->base == PHASE_BACKGROUND)
		slot->sent_socket = socket;
	if (!(slot->flags & (FLAG_BEGUN | FLAG_RECEIVED)) || result <= 0 ||
	    !is_from_client(slot, socket))
		return;
	if (unlikely((slot->flags & file) == file)) /* the client's file has come */
		slot->flags &= ~file;
	if (!(slot->flags & FLAG_BEGUN))
		return;
	slot->flags |= FLAG_ANSWERED;
	slot->answered_ns = now;
}

/* The current thread blocks on the network, and has not tried to receive from its client. */
__noinline int flow_wait(struct thread_slot *slot, u32 kind, u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	s32 descriptor = -1;
	u64 socket;

	if (!slot || slot->flags & (FLAG_POOL | FLAG_RECEIVES))
		return 0;
	if (kind == WAIT_EPOLL) {
		if (slot->base == PHASE_COMMAND && slot->depth == 0)
			await_command(slot, now);
		return 0;
	}
	if (kind == WAIT_RECEIVE || kind == WAIT_READ)
		descriptor = (s32)SYSCALL_ARG0(regs);
	else if (kind == WAIT_POLL)
		descriptor = polled_descriptor(SYSCALL_NUMBER(regs), SYSCALL_ARG0(regs),
					       SYSCALL_ARG1(regs));
	if (descriptor < 0)
		return 0;
	if (kind != WAIT_RECEIVE &&
	    wait_by_file(files_of(task), descriptor) != STATE_BLOCKED_NETWORK)
		return 0; /* no socket */
	socket = socket_of(files_of(task), descriptor);
	if (may_serve(slot, socket) && is_from_client(slot, socket))
		await_command(slot, now);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Boundaries that need no probe, because the thread's next action shows that they were crossed.
 *
 * READING: a command is the innermost phase, and the thread begins to receive from its client. If
 *   the next boundary is another command (or the connection's end), the command ended where the
 *   receiving began: waits since then were idle, the rest record_read. Any other boundary, or a
 *   wait for a disk, shows that the command itself received (LOAD DATA LOCAL, a change of user),
 *   if anything came: else the client has hung up, was idle for too long, or was killed.
 * SENT: a record_write is innermost, and a send ended. Another send without a new record_write
 *   shows that the first one was only a part; any other boundary, that it was the last.
 *
 * Until then the time is charged to the most likely cells, after a copy of them was taken; if the
 * decision differs, the added time moves. So a thread's cells add up at every instant.
 */
#ifndef TLSTAX_PENDING_BPF_H
#define TLSTAX_PENDING_BPF_H

#include "pending_cells.bpf.h"
#include "sockets.bpf.h"

/* ---- SENT ---- */

/* Nothing was sent yet, or not all that the server asked for. */
static __always_inline bool is_sending(struct thread_slot *slot)
{
	u32 depth = slot->depth;
	return depth && depth <= MAX_FRAMES &&
	       slot->frames[(depth - 1) & (MAX_FRAMES - 1)].flags & FRAME_SENDS;
}

/*
 * A send of a record_write ended. It is taken for the last one when all bytes that the server asked
 * for are sent (records only add to them, but compression takes away).
 */
static __always_inline void begin_sent(struct thread_slot *slot, u64 now)
{
	bool whole = (s64)slot->unsent_bytes <= 0;

	begin_pending(slot, now, PENDING_SENT,
		      whole ? phase_below(slot, slot->depth) : PHASE_RECORD_WRITE);
	if (whole)
		slot->depth--;
	settle(slot, now);
}

/* It was the last one. */
__noinline int end_sent(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	struct frame *frame = pending_frame(slot);
	if (slot->depth == slot->pending.depth)
		move_pending(slot, phase_below(slot, slot->pending.depth));
	slot->depth = slot->pending.depth - 1;
	finished(slot, frame->phase, slot->pending.start_ns - frame->start_ns);
	slot->pending.kind = PENDING_NONE;
	settle(slot, now);
	return 0;
}

/* It was a part, or has not returned yet: the record_write goes on. */
__noinline int resume_sending(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	if (slot->depth != slot->pending.depth)
		move_pending(slot, PHASE_RECORD_WRITE);
	slot->depth = slot->pending.depth;
	slot->pending.kind = PENDING_NONE;
	settle(slot, now);
	return 0;
}

/*
 * The current thread loses its CPU. A thread woken by a send often preempts the sender before the
 * call returns: that wait belongs to the send.
 */
__noinline int pending_preempted(struct thread_slot *slot, u64 now)
{
	if (!slot || slot->pending.kind != PENDING_SENT)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 number = SYSCALL_NUMBER(regs); /* -1 where an interrupt took the CPU */
	u32 kind =
		number < MAX_SYSCALLS ? config.wait_kind[number & (MAX_SYSCALLS - 1)] : WAIT_OTHER;
	if ((kind != WAIT_NETWORK && kind != WAIT_BY_FILE) ||
	    socket_of(files_of(task), SYSCALL_ARG0(regs)) != slot->sent_socket)
		return 0;
	resume_sending(slot, now);
	slot->flags |= FLAG_SEND_ENDS;
	return 0;
}

/* The sender has its CPU back: see pending_preempted(). */
__noinline int sender_runs(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	slot->flags &= ~FLAG_SEND_ENDS;
	if (is_sending(slot))
		begin_sent(slot, now);
	return 0;
}

static __always_inline void pending_runs(struct thread_slot *slot, u64 now)
{
	if (unlikely(slot->flags & FLAG_SEND_ENDS))
		sender_runs(slot, now);
}

/* ---- READING ---- */

/* The thread receives from its client, or is about to; `now` is charged. */
__noinline int begin_reading(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	if (slot->pending.kind == PENDING_SENT)
		end_sent(slot, now);
	u32 depth = slot->depth;
	if (depth > MAX_FRAMES || slot->pending.kind)
		return 0;
	if (depth == 0) {
		if (slot->flags & FLAG_AWAIT && slot->base == PHASE_IDLE) { /* the first command */
			slot->base = PHASE_RECORD_READ;
			slot->base_start_ns = now;
			settle(slot, now);
		}
		return 0;
	}
	u32 top = depth - 1;
	asm volatile("" : "+r"(top)); /* or the compiler drops the mask, which 6.1 needs */
	struct frame *frame = &slot->frames[top & (MAX_FRAMES - 1)];
	if (is_sending(slot)) { /* no send was seen */
		heal_top(slot, now);
		settle(slot, now);
		return 0; /* the next event decides */
	}
	if (!(frame->flags & FRAME_OPEN) || frame->phase != PHASE_COMMAND)
		return 0;
	if (slot->flags & FLAG_RECEIVES)
		return 0;
	begin_pending(slot, now, PENDING_READING, PHASE_RECORD_READ);
	/* Counted where it ends: the next command may come much later. */
	slot->pending.shard = finished(slot, frame->phase, now - frame->start_ns);
	slot->depth = 0;
	slot->base = PHASE_RECORD_READ;
	slot->base_start_ns = now;
	slot->flags |= FLAG_AWAIT;
	settle(slot, now);
	return 0;
}

/* The command had not ended. */
__noinline int retract_reading(struct thread_slot *slot, u64 now)
{
	if (!slot)
		return 0;
	struct frame *frame = pending_frame(slot);
	move_pending(slot, frame->phase);
	add_finished(slot, frame->phase, slot->pending.start_ns - frame->start_ns,
		     slot->pending.shard, -1);
	slot->depth = slot->pending.depth;
	slot->base = slot->pending.base;
	slot->flags &= ~FLAG_AWAIT;
	slot->pending.kind = PENDING_NONE;
	settle(slot, now);
	return 0;
}

/* ---- what decides ---- */

/* A command begins, or the connection changes: pending time stays as charged. */
static __always_inline void confirm_pending(struct thread_slot *slot, u64 now)
{
	if (slot->pending.kind == PENDING_SENT)
		end_sent(slot, now);
	slot->pending.kind = PENDING_NONE;
}

/* The thread does something else that only a command in progress does, or a connection's end. */
static __always_inline void goes_on(struct thread_slot *slot, u64 now)
{
	if (slot->pending.kind == PENDING_READING && slot->pending.received)
		retract_reading(slot, now);
	else
		confirm_pending(slot, now);
}

/*
 * Whether the other end is a client: a server may be the client of another one while it executes
 * (FEDERATED, CONNECT). What it receives from there is no command.
 */
static __always_inline bool is_client(struct thread_slot *slot, u64 socket)
{
	return !slot->client_socket || socket == slot->client_socket || is_accepted(socket);
}

/* The command answers, so it did not receive the next one before. */
static __always_inline void note_answer(struct thread_slot *slot)
{
	slot->flags |= FLAG_ANSWERED;
	if (slot->flags & FLAG_RECEIVED)
		slot->flags &= ~(FLAG_RECEIVES | FLAG_RECEIVED);
}

/* Before a boundary's own action. The start of a handshake handles this itself. */
__noinline int decide_at_entry(struct thread_slot *slot, u64 now, u64 cookie)
{
	if (!slot)
		return 0;
	charge(slot, now);
	switch (COOKIE_ACTION(cookie)) {
	case ACTION_PHASE_OPEN:
		if (COOKIE_PHASE(cookie) == PHASE_COMMAND) {
			confirm_pending(slot, now);
			break;
		}
		/* fallthrough */
	case ACTION_PHASE:
	case ACTION_PHASE_SEND:
		if (!out_of_place(slot, cookie))
			goes_on(slot, now);
		break;
	case ACTION_WAIT:
	case ACTION_COMMAND_READS:
		goes_on(slot, now);
		break;
	case ACTION_HANDSHAKE_CALL:
	case ACTION_HANDSHAKE_GROUP:
	case ACTION_HANDSHAKE_KEM:
	case ACTION_HANDSHAKE_SOCKET:
	case ACTION_HANDSHAKE_FREE:
		break;
	default:
		confirm_pending(slot, now);
	}
	return 0;
}

__noinline int decide_at_exit(struct thread_slot *slot, u64 now, u64 cookie)
{
	if (!slot)
		return 0;
	charge(slot, now);
	switch (COOKIE_ACTION(cookie)) {
	case ACTION_PHASE:
	case ACTION_PHASE_SEND:
	case ACTION_PHASE_CLOSE:
		if (slot->pending.kind == PENDING_SENT)
			end_sent(slot, now);
		break;
	case ACTION_BASE_IDLE:
	case ACTION_BASE_PARK:
		confirm_pending(slot, now);
		break;
	}
	return 0;
}

static __always_inline void received(struct thread_slot *slot, u64 socket, s32 result, u64 now)
{
	if (!is_client(slot, socket))
		return;
	slot->last_socket = socket;
	if (slot->flags & FLAG_RECEIVES) {
		slot->flags |= FLAG_RECEIVED;
		return;
	}
	if (slot->pending.kind != PENDING_READING) {
		if (slot->depth == 0 && slot->base != PHASE_IDLE)
			return;
		charge(slot, now);
		begin_reading(slot, now);
	}
	if (result > 0 && slot->pending.kind == PENDING_READING)
		slot->pending.received = true;
}

static __always_inline void sent(struct thread_slot *slot, u64 socket, s32 result, u64 now)
{
	if (socket == slot->client_socket)
		note_answer(slot);
	if (slot->pending.kind == PENDING_SENT) {
		if (socket != slot->sent_socket)
			return;
		charge(slot, now);
		resume_sending(slot, now);
	} else {
		if (!is_sending(slot))
			return;
		charge(slot, now);
		if (!is_client(slot, socket)) {
			take_back_sending(slot, now);
			return;
		}
	}
	if (result == -EAGAIN)
		return;
	slot->sent_socket = socket;
	if (result > 0)
		slot->unsent_bytes -= result;
	if (result < 0)
		slot->unsent_bytes = 0;
	begin_sent(slot, now);
}

/* The current thread blocks: `now` is charged, nothing of the wait yet. */
__noinline int pending_wait(struct thread_slot *slot, u32 state, u32 kind, u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	s32 descriptor;

	if (!slot)
		return 0;
	if (slot->pending.kind == PENDING_READING) {
		if (state == STATE_BLOCKED_DISK)
			goes_on(slot, now);
		return 0;
	}
	if (state != STATE_BLOCKED_NETWORK)
		return 0;
	switch (kind) {
	case WAIT_RECEIVE:
	case WAIT_READ:
		if (is_client(slot, socket_of(files_of(task), SYSCALL_ARG0(regs))))
			begin_reading(slot, now);
		break;
	case WAIT_POLL:
		if (!(slot->flags & FLAG_ANSWERED) || is_sending(slot))
			break;
		descriptor = polled_descriptor(SYSCALL_NUMBER(regs), SYSCALL_ARG0(regs),
					       SYSCALL_ARG1(regs));
		if (descriptor >= 0 && is_client(slot, socket_of(files_of(task), descriptor)))
			begin_reading(slot, now);
		break;
	case WAIT_EPOLL:
		begin_reading(slot, now);
		break;
	}
	return 0;
}

#endif

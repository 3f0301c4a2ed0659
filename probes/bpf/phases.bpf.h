/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stack of open phases of a thread.
 *
 * The kernel can drop a probe hit, and longjmp or a thread's end skip exits. Each open phase
 * therefore keeps the user stack pointer of its entry: whatever lies at or below the current one
 * is dead and is popped ("healed") instead of shifting every later nanosecond.
 */
#ifndef TLSTAX_PHASES_BPF_H
#define TLSTAX_PHASES_BPF_H

#include "account.bpf.h"
#include "return_address.bpf.h"

enum { SIDE_SERVER = 1, SIDE_CLIENT = 2 };

static __always_inline bool in_handshake(struct thread_slot *slot)
{
	u32 phase = innermost_phase(slot);
	return phase >= PHASE_HANDSHAKE && phase <= PHASE_CERTIFICATE;
}

/* A connection is being set up or torn down: its own reads and writes belong to that. */
static __always_inline bool between_connections(struct thread_slot *slot)
{
	return slot->base == PHASE_CONNECT || slot->base == PHASE_DISCONNECT ||
	       slot->base == PHASE_BACKGROUND;
}

/* An entry that does not open the phase, so that its exit finds no frame either. */
static __always_inline bool out_of_place(struct thread_slot *slot, u64 cookie)
{
	u32 phase = COOKIE_PHASE(cookie);
	if (COOKIE_ACTION(cookie) == ACTION_CALL) /* the library calls its own functions */
		return slot->depth > 0;
	if (COOKIE_IN_HANDSHAKE(cookie))
		return !in_handshake(slot);
	if (COOKIE_ACTION(cookie) == ACTION_HANDSHAKE_BOUND && COOKIE_SIDE(cookie) == SIDE_CLIENT)
		return innermost_phase(slot) == PHASE_COMMAND; /* which asks another server */
	if (phase == PHASE_TDE)
		return innermost_phase(slot) == PHASE_TDE;
	if (phase == PHASE_COMMAND && slot->role > ROLE_CONNECTION)
		return slot->base == PHASE_CONNECT; /* the server's own, to connect */
	if (phase == PHASE_CONNECT)		    /* once more, as another user */
		return innermost_phase(slot) != PHASE_COMMAND;
	return (phase == PHASE_RECORD_READ || phase == PHASE_RECORD_WRITE) &&
	       between_connections(slot);
}

/* A pool's thread keeps its role; otherwise the role of an earlier connection is replaced. */
static __always_inline void serve_connection(struct thread_slot *slot, bool another)
{
	if (slot->role == ROLE_BACKGROUND || (another && !(slot->flags & FLAG_POOL)))
		slot->role = ROLE_CONNECTION;
}

static __always_inline void settle(struct thread_slot *slot, u64 now)
{
	slot->owner = innermost_phase(slot);
	slot->phase_event_ns = now;
}

/* The exit of the innermost phase was missed, some time after the last boundary. */
static __always_inline void heal_top(struct thread_slot *slot, u64 now)
{
	slot->depth--;
	count_healed(&slot->frames[slot->depth & (MAX_FRAMES - 1)]);
	slot->healed_count++;
	slot->uncertain_ns += now - slot->phase_event_ns;
	slot->phase_event_ns = now;
	count_loss(LOSS_HEALED);
}

/* Drop the innermost frame if it is at or below `sp`; 0: it is not. */
__noinline int drop_one_dead(struct thread_slot *slot, u64 now, u64 sp)
{
	if (!slot)
		return 0;
	u32 depth = slot->depth;
	if (depth == 0 || depth > MAX_FRAMES)
		return 0;
	struct frame *top = &slot->frames[(depth - 1) & (MAX_FRAMES - 1)];
	if (top->flags & FRAME_STITCHED || top->sp > sp)
		return 0;
	if (top->flags & FRAME_OPEN) {
		slot->depth--;
		finished(slot, top->phase, now - top->start_ns);
	} else {
		heal_top(slot, now);
	}
	return 1;
}

/* Drop every frame at or below `sp`. Charge first. Open frames end here by design. */
__noinline int drop_dead(struct thread_slot *slot, u64 now, u64 sp)
{
	for (int i = 0; slot && i < MAX_FRAMES; i++)
		if (!drop_one_dead(slot, now, sp))
			break;
	return 0;
}

/*
 * Whether the function that was entered at `entry_sp` and returns to `returns` is still open, for
 * the current thread, whose stack pointer is `sp`.
 */
static __always_inline bool is_open(u64 entry_sp, u64 returns, u64 sp)
{
	return sp < entry_sp && has_frame(entry_sp, returns);
}

/* The innermost phase ends. A handshake is counted by its record: the call may be one of many. */
static __always_inline void end_top(struct thread_slot *slot, struct frame *top, u64 now)
{
	slot->depth--;
	if (top->phase != PHASE_HANDSHAKE)
		finished(slot, top->phase, now - top->start_ns);
}

/* End the innermost phase if its function has returned without a probe that shows it; else 0. */
__noinline int drop_one_returned(struct thread_slot *slot, u64 now, u64 sp)
{
	if (!slot)
		return 0;
	u32 depth = slot->depth;
	if (depth == 0 || depth > MAX_FRAMES)
		return 0;
	struct frame *top = &slot->frames[(depth - 1) & (MAX_FRAMES - 1)];
	if (!(top->flags & FRAME_RETURNS) || FAULT_HIDES_END(top->phase) ||
	    is_open(top->sp, top->returns, sp))
		return 0;
	charge(slot, now);
	end_top(slot, top, now);
	settle(slot, now);
	return 1;
}

/* End all of these. */
__noinline int drop_returned(struct thread_slot *slot, u64 now, u64 sp)
{
	for (int i = 0; slot && i < MAX_FRAMES; i++)
		if (!drop_one_returned(slot, now, sp))
			break;
	return 0;
}

static __always_inline bool may_have_returned(struct thread_slot *slot)
{
	u32 depth = slot->depth;
	return unlikely(depth) && depth <= MAX_FRAMES &&
	       slot->frames[(depth - 1) & (MAX_FRAMES - 1)].flags & FRAME_RETURNS;
}

static __always_inline void heal(struct thread_slot *slot, u64 now, u64 sp)
{
	if (may_have_returned(slot))
		drop_returned(slot, now, sp);
	u32 depth = slot->depth;
	if (slot->wait_sp && slot->wait_sp <= sp)
		slot->wait_sp = 0;
	if (depth && depth <= MAX_FRAMES && slot->frames[(depth - 1) & (MAX_FRAMES - 1)].sp <= sp)
		drop_dead(slot, now, sp);
}

/*
 * A function that leaves by a jump into another of its own phase: the second entry has the stack
 * pointer of the first, and both exits will fire. The same site twice is a missed exit instead.
 */
static __always_inline bool is_tail_call(struct thread_slot *slot, u64 sp, u64 cookie)
{
	u32 depth = slot->depth;
	if (depth == 0 || depth > MAX_FRAMES)
		return false;
	struct frame *top = &slot->frames[(depth - 1) & (MAX_FRAMES - 1)];
	if (top->sp != sp || top->phase != COOKIE_PHASE(cookie) || top->flags ||
	    top->site == COOKIE_SITE(cookie))
		return false;
	top->tail_calls++;
	return true;
}

static __always_inline void push_phase(struct thread_slot *slot, u64 now, u64 sp, u32 phase,
				       u32 flags, u32 site, u64 returns)
{
	u32 depth = slot->depth;
	if (depth >= MAX_FRAMES) {
		count_loss(LOSS_PHASE_STACK_OVERFLOW);
		return;
	}
	struct frame *frame = &slot->frames[depth & (MAX_FRAMES - 1)];
	frame->sp = sp;
	frame->start_ns = now;
	frame->returns = returns;
	if (!returns)
		flags &= ~FRAME_RETURNS;
	frame->phase = phase;
	frame->flags = flags;
	frame->site = site;
	frame->tail_calls = 0;
	slot->depth = depth + 1;
	settle(slot, now);
}

/* How the frame of an entry ends. */
static __always_inline u32 frame_flags(u64 cookie)
{
	if (COOKIE_ACTION(cookie) == ACTION_PHASE_OPEN)
		return FRAME_OPEN;
	if (COOKIE_ACTION(cookie) == ACTION_PHASE_SEND && config.covered_by_tracepoint)
		return FRAME_SENDS;
	return COOKIE_UNSEEN_EXITS(cookie) ? FRAME_RETURNS : 0;
}

/* A function was entered that returns to `returns`; 0: unknown. */
__noinline int enter_phase(struct thread_slot *slot, u64 now, u64 sp, u64 cookie, u64 returns)
{
	if (!slot)
		return 0;
	u32 phase = COOKIE_PHASE(cookie), flags = frame_flags(cookie);
	charge(slot, now);
	if (is_tail_call(slot, sp, cookie))
		return 0;
	heal(slot, now, sp);
	if (out_of_place(slot, cookie)) {
		settle(slot, now);
		return 0;
	}
	if (flags & FRAME_OPEN && phase == PHASE_COMMAND) { /* it arrived just now */
		if (slot->flags & (FLAG_AWAIT | FLAG_POOL))
			finished(slot, PHASE_RECORD_READ, now - slot->base_start_ns);
		else if (config.covered_by_tracepoint && slot->base == PHASE_IDLE)
			finished(slot, PHASE_RECORD_READ, 0); /* it was received with another */
		slot->flags &=
			~(FLAG_AWAIT | FLAG_POOL | FLAG_ANSWERED | FLAG_RECEIVES | FLAG_RECEIVED);
		slot->base = PHASE_IDLE;
		serve_connection(slot, false);
		if (slot->last_socket)
			slot->client_socket = slot->last_socket;
	}
	if (!(flags & FRAME_OPEN) && phase != PHASE_HANDSHAKE)
		count_begun(cookie);
	push_phase(slot, now, sp, phase, flags, COOKIE_SITE(cookie), returns);
	return 0;
}

enum leaving { LEAVES_NONE, LEAVES_MORE, LEAVES_MATCHED };

/* What the return of a function of `phase` does to the innermost frame; NONE: it stays. */
__noinline int leave_one(struct thread_slot *slot, u64 now, u64 sp, u32 phase)
{
	if (!slot)
		return LEAVES_NONE;
	u32 depth = slot->depth;
	if (depth == 0 || depth > MAX_FRAMES)
		return LEAVES_NONE;
	struct frame *top = &slot->frames[(depth - 1) & (MAX_FRAMES - 1)];
	if (top->flags & FRAME_STITCHED || top->sp >= sp)
		return LEAVES_NONE;
	if (top->flags & FRAME_RETURNS && top->sp + sizeof(u64) != sp) {
		end_top(slot, top, now); /* a function inside, which has no exit */
		return LEAVES_MORE;
	}
	if (top->phase == phase) {
		if (top->tail_calls) {
			top->tail_calls--;
			return LEAVES_MATCHED;
		}
		end_top(slot, top, now);
		settle(slot, now);
		return LEAVES_MATCHED;
	}
	heal_top(slot, now);
	return LEAVES_MORE;
}

/*
 * A function returned; `sp` is the stack pointer behind its return address. Returns whether that
 * ended a call of it.
 */
__noinline int leave_phase(struct thread_slot *slot, u64 now, u64 sp, u64 cookie)
{
	if (!slot)
		return 0;
	charge(slot, now);
	for (int i = 0; i < MAX_FRAMES; i++) {
		int left = leave_one(slot, now, sp, COOKIE_PHASE(cookie));
		if (left == LEAVES_MATCHED)
			return 1;
		if (left == LEAVES_NONE)
			break;
	}
	if (!COOKIE_STRAY(cookie) && !out_of_place(slot, cookie))
		count_loss(LOSS_UNMATCHED_EXIT);
	settle(slot, now);
	return 0;
}

/* Level flow: the command that was received last ends. */
static __always_inline void end_command(struct thread_slot *slot, u64 now)
{
	u32 flags = slot->flags;
	if (!(flags & FLAG_BEGUN))
		return;
	finished(slot, PHASE_COMMAND,
		 (flags & FLAG_ANSWERED ? slot->answered_ns : now) - slot->base_start_ns);
	slot->flags = flags & ~(FLAG_BEGUN | FLAG_ANSWERED);
}

/* The connection itself moves on: no frame can be open. */
__noinline int change_base(struct thread_slot *slot, u64 now, u64 sp, u32 base, u32 flags)
{
	if (!slot)
		return 0;
	charge(slot, now);
	heal(slot, now, sp);
	end_command(slot, now);
	if (base == PHASE_IDLE && slot->base == PHASE_CONNECT)
		finished(slot, PHASE_CONNECT, now - slot->base_start_ns);
	if (flags & FLAG_PARK && slot->base == PHASE_DISCONNECT)
		finished(slot, PHASE_DISCONNECT, now - slot->base_start_ns);
	if (slot->base != base || flags & FLAG_AWAIT)
		slot->base_start_ns = now;
	serve_connection(slot,
			 base == PHASE_CONNECT && (slot->base != base || slot->flags & FLAG_PARK));
	if (base == PHASE_IDLE && slot->status == THREAD_PAUSED)
		base = PHASE_UNKNOWN; /* its commands will not be seen */
	if (base == PHASE_CONNECT || (flags & FLAG_POOL && !config.flow))
		slot->client_socket = 0; /* another one's, until its first command */
	slot->base = base;
	/* A client may have broken off in its file: the server sends nothing then. */
	u32 ended = FLAG_AWAIT | FLAG_PARK | FLAG_POOL | FLAG_RECEIVES | FLAG_RECEIVED;
	slot->flags = (slot->flags & ~ended) | flags;
	settle(slot, now);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Where time is charged until it is known which boundary was crossed, and how it moves then. */
#ifndef TLSTAX_PENDING_CELLS_BPF_H
#define TLSTAX_PENDING_CELLS_BPF_H

#include "phases.bpf.h"
#include "waits.bpf.h"

enum { EAGAIN = 11 };

/* The cell that a pending state is charged to: waiting for the client is idle. */
static __always_inline u64 *pending_cell(struct thread_slot *slot, u32 state)
{
	struct pending *pending = &slot->pending;
	u32 phase = pending->charged & (PHASES - 1);

	if (pending->kind == PENDING_READING && state == STATE_BLOCKED_NETWORK)
		phase = PHASE_IDLE;
	return &slot->ns[phase][state & (STATES - 1)];
}

static __always_inline void begin_pending(struct thread_slot *slot, u64 now, u32 kind, u32 charged)
{
	struct pending *pending = &slot->pending;

	pending->kind = kind;
	pending->charged = charged;
	pending->start_ns = now;
	pending->depth = slot->depth;
	pending->base = slot->base;
	pending->received = false;
	for (u32 state = 0; state < STATES; state++)
		pending->before_ns[state] = *pending_cell(slot, state);
}

/* What was charged since begin_pending() belongs to `phase`. */
__noinline int move_pending(struct thread_slot *slot, u32 phase)
{
	if (!slot)
		return 0;
	phase &= PHASES - 1;
	for (u32 state = 0; state < STATES; state++) {
		u64 *cell = pending_cell(slot, state);
		u64 spent = *cell - slot->pending.before_ns[state];
		if (!spent)
			continue;
		__sync_fetch_and_add(cell, -spent);
		__sync_fetch_and_add(&slot->ns[phase][state], spent);
	}
	return 0;
}

static __always_inline struct frame *pending_frame(struct thread_slot *slot)
{
	return &slot->frames[(slot->pending.depth - 1) & (MAX_FRAMES - 1)];
}

/* The phase that a frame at `depth` lies in. */
static __always_inline u32 phase_below(struct thread_slot *slot, u32 depth)
{
	return depth > 1 ? slot->frames[(depth - 2) & (MAX_FRAMES - 1)].phase : slot->base;
}

/*
 * The innermost record_write asks another server: that is part of the command. So is its time, if
 * the thread kept its CPU.
 */
static __noinline int take_back_sending(struct thread_slot *slot, u64 now)
{
	u32 depth = slot->depth;
	if (!depth || depth > MAX_FRAMES)
		return 0;
	struct frame *frame = &slot->frames[(depth - 1) & (MAX_FRAMES - 1)];
	if (slot->run_start_ns <= frame->start_ns) {
		u64 spent = now - frame->start_ns;
		u32 below = phase_below(slot, depth) & (PHASES - 1);
		__sync_fetch_and_add(&slot->ns[PHASE_RECORD_WRITE][STATE_ON_CPU], -spent);
		__sync_fetch_and_add(&slot->ns[below][STATE_ON_CPU], spent);
	}
	slot->depth = depth - 1;
	settle(slot, now);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes on the target's functions: a boundary is entered or left.
 */
#ifndef TLSTAX_BOUNDARIES_BPF_H
#define TLSTAX_BOUNDARIES_BPF_H

#include "handshake.bpf.h"
#include "preemption.bpf.h"
#include "scheduler.bpf.h"

/* What the site reads: an argument or the return value, from the register in the cookie. */
static __always_inline u64 value_at(u64 cookie)
{
	u64 value = 0;
	/* A helper, because no verifier takes a load at a variable offset of the context. */
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	bpf_probe_read_kernel(&value, sizeof(value),
			      (unsigned long *)user + REGISTER_PLACE(COOKIE_REGISTER(cookie)));
	return value;
}

/* Whether an algorithm is that of a group: its keys are encapsulated, and it is no part of one. */
static __always_inline bool is_group(const char *algorithm, const char *known)
{
	if (algorithm[2] == '-' && known[0])
		return false; /* ML-KEM-768 in X25519MLKEM768 */
	for (u32 i = 0; i + 2 < GROUP_BYTES; i++)
		if (algorithm[i] == 'K' && algorithm[i + 1] == 'E' && algorithm[i + 2] == 'M')
			return true;
	return false;
}

/*
 * The name of a group, or the algorithm of a key that is made: groups that encapsulate keys have no
 * other name, "" as that of the group. The algorithms of other keys and of MACs are not kept.
 */
__noinline int note_group(struct thread_slot *slot, u64 at, u32 is_algorithm)
{
	char name[GROUP_BYTES] = {};

	if (!slot || bpf_probe_read_user_str(name, GROUP_BYTES, (void *)at) < 0 || !name[0])
		return 0;
	if (!is_algorithm || is_group(name, slot->handshake.group))
		__builtin_memcpy(slot->handshake.group, name, GROUP_BYTES);
	return 0;
}

static __always_inline void enter_boundary(struct pt_regs *ctx, struct thread_slot *slot,
					   u64 cookie, u64 now)
{
	u64 sp = REGS_SP(ctx) + COOKIE_STACK_BYTES(cookie);
	u32 role = COOKIE_ROLE(cookie);
	u32 reading = config.flow ? PHASE_COMMAND : PHASE_RECORD_READ;
	u64 leads_to = COOKIE_UNSEEN_EXITS(cookie) ? return_address(ctx, sp, cookie) : 0;

	if (slot->pending.kind)
		decide_at_entry(slot, now, cookie);
	switch (COOKIE_ACTION(cookie)) {
	case ACTION_AWAIT_COMMAND:
		if (role && slot->base == PHASE_CONNECT)
			break; /* the X protocol has messages before it is connected, too */
	case ACTION_AWAIT_RECEIVE:
		change_base(slot, now, sp, reading, FLAG_AWAIT);
		break;
	case ACTION_PHASE_OPEN:
		enter_phase(slot, now, sp, cookie, 0);
		break;
	case ACTION_PHASE:
	case ACTION_HANDSHAKE_BOUND:
		enter_phase(slot, now, sp, cookie, leads_to);
		break;
	case ACTION_CALL:
		slot->role = ROLE_CONNECTION;
		enter_phase(slot, now, sp, cookie, leads_to);
		break;
	case ACTION_PHASE_SEND:
		if (config.covered_by_tracepoint)
			slot->unsent_bytes = value_at(cookie);
		enter_phase(slot, now, sp, cookie, leads_to);
		break;
	case ACTION_COMMAND_READS:
		slot->flags |= FLAG_RECEIVES;
		break;
	case ACTION_BASE_CONNECT:
		change_base(slot, now, sp, PHASE_CONNECT, 0);
		break;
	case ACTION_BASE_DISCONNECT:
		change_base(slot, now, sp, PHASE_DISCONNECT, 0);
		break;
	case ACTION_BASE_POOL:
		change_base(slot, now, sp, reading, FLAG_POOL);
		break;
	case ACTION_HANDSHAKE_CALL:
		enter_handshake_call(slot, now, sp, value_at(cookie), cookie);
		break;
	case ACTION_HANDSHAKE_GROUP:
	case ACTION_HANDSHAKE_KEM:
		if (slot->handshake.active)
			note_group(slot, value_at(cookie),
				   COOKIE_ACTION(cookie) == ACTION_HANDSHAKE_KEM);
		break;
	case ACTION_HANDSHAKE_SOCKET:
		note_peer(slot, value_at(cookie));
		break;
	case ACTION_HANDSHAKE_FREE:
		enter_handshake_free(slot, now, value_at(cookie));
		break;
	case ACTION_CROSSING:
		if (!out_of_place(slot, cookie))
			count_begun(cookie);
		break;
	case ACTION_WAIT:
		slot->wait_returns = return_address(ctx, sp, cookie);
		slot->wait_sp = sp;
		slot->wait_as = COOKIE_STATE(cookie);
		break;
	}
	if (role)
		slot->role = role;
}

static __always_inline void leave_boundary(struct pt_regs *ctx, struct thread_slot *slot,
					   u64 cookie, u64 now)
{
	u64 sp = REGS_SP(ctx) + COOKIE_STACK_BYTES(cookie);
	bool matched = true;

	if (slot->pending.kind)
		decide_at_exit(slot, now, cookie);
	switch (COOKIE_ACTION(cookie)) {
	case ACTION_PHASE:
	case ACTION_CALL:
	case ACTION_PHASE_SEND:
	case ACTION_HANDSHAKE_BOUND:
	case ACTION_PHASE_CLOSE:
		matched = leave_phase(slot, now, sp, cookie);
		break;
	case ACTION_BASE_IDLE:
		change_base(slot, now, sp, PHASE_IDLE,
			    config.covered_by_tracepoint || config.flow ? FLAG_AWAIT : 0);
		break;
	case ACTION_BASE_PARK:
		change_base(slot, now, sp, PHASE_DISCONNECT, FLAG_PARK);
		break;
	case ACTION_HANDSHAKE_CALL:
		matched = leave_handshake_call(slot, now, sp, (s32)value_at(cookie), cookie);
		break;
	}
	if (COOKIE_STRAY(cookie) && matched)
		count_hit(cookie);
}

/* The current thread's slot, if it belongs to the target; counts the hit. */
static __always_inline struct thread_slot *hit(u64 cookie, u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_target(task) || is_abandoned(now))
		return NULL;
	struct thread_slot *slot = find_slot(task);
	if (slot && slot->state != STATE_ON_CPU && slot->status == THREAD_LIVE)
		came_unseen(slot, task, now);
	if (!COOKIE_STRAY(cookie)) /* else where it proves to be an exit */
		count_hit(cookie);
	return slot;
}

SEC("uprobe")
int on_enter(struct pt_regs *ctx)
{
	BEGIN_UNPREEMPTED();
	u64 cookie = bpf_get_attach_cookie(ctx);
	u64 now = bpf_ktime_get_ns();
	struct thread_slot *slot = hit(cookie, now);
	if (slot)
		enter_boundary(ctx, slot, cookie, now);
	END_UNPREEMPTED();
	return 0;
}

static __always_inline void leave(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	if (FAULT_HIDES_END(COOKIE_PHASE(cookie)) ||
	    (COOKIE_HAS_CONDITION(cookie) && !condition_holds(ctx, COOKIE_CONDITION(cookie))))
		return;
	u64 now = bpf_ktime_get_ns();
	struct thread_slot *slot = hit(cookie, now);
	if (slot)
		leave_boundary(ctx, slot, cookie, now);
}

SEC("uretprobe")
int on_leave(struct pt_regs *ctx)
{
	BEGIN_UNPREEMPTED();
	leave(ctx);
	END_UNPREEMPTED();
	return 0;
}

#endif

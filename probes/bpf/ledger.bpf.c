// SPDX-License-Identifier: GPL-2.0-only
/*
 * ledger - every nanosecond of every thread of one process, by phase and state.
 *
 * Question: where does the time of a TLS server go: handshake, records, commands, or waiting?
 * Emits: ns per (thread, phase, state); latency histograms per phase; one record per handshake;
 *        phase-tagged CPU samples and off-CPU stacks; hit and loss counters.
 * Attaches: uprobes and uretprobes chosen by collectors/placement/placement.py; tp_btf
 *           sched_switch, sched_wakeup, sched_process_fork, sched_process_exit and
 *           sched_process_exec; tp_btf sock_recv_length and sock_send_length, or else fexit of
 *           inet_recvmsg, inet_sendmsg, and of inet6_ and unix_stream_ alike; cpu-clock perf
 *           events; a task iterator for the threads that exist already, or found no room before.
 * Needs: BTF, ring buffer, task storage and bpf_task_pt_regs (kernel 5.15 or a backport);
 *        CAP_BPF and CAP_PERFMON, or root.
 * Blind to: time inside a phase whose entry probe was dropped (counted as uncertain); user stacks
 *           through code with neither unwind tables nor frame pointers; what interrupts do in the
 *           thread's time.
 * Example: tlstax attach --name mariadbd --for 30s -o server.tlstax
 *          tlstax report server.tlstax
 */
#include "account.bpf.h"
#include "closure.bpf.h"
#include "flow.bpf.h"
#include "handshake.bpf.h"
#include "pending.bpf.h"
#include "phases.bpf.h"
#include "preemption.bpf.h"
#include "sockets.bpf.h"
#include "threads.bpf.h"
#include "waits.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* ---- scheduler ---- */

/*
 * The slot of a thread that runs here: the switch to it has noted which one, which costs less than
 * to ask for it. Where that switch was not seen, or came to another CPU, it is asked for.
 */
static __always_inline struct thread_slot *running_slot(struct task_struct *task)
{
	struct cpu_counts *cpu = find_cpu(bpf_get_smp_processor_id());

	if (likely(cpu && cpu->current == (u64)task)) {
		u32 index = cpu->current_index;
		struct thread_slot *slot = bpf_map_lookup_elem(&slots, &index);
		if (likely(slot && slot->tid == task->pid))
			return slot;
	}
	return find_slot(task);
}

/* The clocks of the CPU that the thread is on. False: this kernel does not show them. */
static __always_inline bool read_clocks(struct task_struct *task, u64 now,
					struct cpu_clocks *clocks)
{
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return false;
	struct rq *rq = task->se.cfs_rq->rq;
	clocks->lag_ns = now - rq->clock;
	clocks->uncharged_ns = rq->clock - rq->clock_task;
	return true;
}

/*
 * When the thread's stay on the CPU ended. The tracepoint fires after the next thread was chosen,
 * the scheduler's timestamp is earlier.
 *
 * - A thread that blocks has done so at the timestamp: choosing the next one is not its time.
 * - A thread that is preempted has run until now. Its timestamp is that of the wake-up that
 *   preempts it, up to 60 us earlier, and the scheduler charges the time since to the next thread.
 *
 * `late` is how much later the switch is than the timestamp, less the same of the switch to the
 * thread. It is counted as handed_ns: the ledger's time less this compares with the scheduler's.
 * Where the kernel shows its clocks, no count of the scheduler's is in it.
 */
static __always_inline u64 left_cpu(struct thread_slot *slot, struct task_struct *task, u64 now,
				    bool runnable)
{
	u64 counted = task->se.sum_exec_runtime - slot->sched_cpu_ns;
	s64 gap = (s64)(now - slot->run_start_ns - counted), stolen, late;
	s64 choice_most = CHOICE_MOST_NS;
	struct cpu_clocks clocks;

	if (unlikely(!slot->run_start_ns))
		return now;
	if (read_clocks(task, now, &clocks)) {
		late = (s64)(clocks.lag_ns - slot->came.lag_ns);
		stolen = (s64)(clocks.uncharged_ns - slot->came.uncharged_ns);
	} else {
		choice_most = SWITCH_GAP_NS;
		late = gap > SWITCH_GAP_NS || gap < -SWITCH_GAP_NS ? 0 : gap;
		stolen = gap - late;
	}
	slot->steal_ns += stolen + FAULT_STEALS(now - slot->run_start_ns);
	/* The scheduler looks at its clock at every tick. */
	if (unlikely((runnable && late < TICK_NS) || (late < 0 && late > -TICK_NS))) {
		slot->handed_ns += late;
		return now;
	}
	gap -= stolen;
	if (unlikely(runnable || gap < 0 || gap > choice_most))
		return now;
	if (slot->last_ns > now - gap)
		slot->handed_ns += slot->last_ns - (now - gap);
	return now - gap;
}

/* The wait has ended: the thread is runnable, in the same phase. */
static __always_inline void woken(struct thread_slot *slot, u64 now)
{
	charge(slot, now);
	finish_wait(slot, now);
	if (slot->owner == PHASE_IDLE) {
		if (unlikely(slot->flags & FLAG_PARK))
			slot->base = PHASE_CONNECT;
		if (slot->flags & (FLAG_PARK | FLAG_AWAIT | FLAG_POOL))
			slot->base_start_ns = now;
		slot->phase_event_ns = now;
	}
	slot->state = STATE_RUNNABLE;
	slot->owner = innermost_phase(slot);
}

enum { UNSEEN_WAKEUPS_MOST = 20 }; /* a second: more are a fault, which closure is to show */

/*
 * The thread is given a CPU, and no wake-up of it was reported: one kernel was seen to miss some.
 * How long it has waited, by the scheduler's stamp; 0: not known.
 */
static __noinline u64 waited_unseen_ns(struct thread_slot *slot, struct task_struct *task, u64 now)
{
	struct cpu_counts *cpu = find_cpu(bpf_get_smp_processor_id());
	u64 second = now / 1000000000;

	if (!bpf_core_field_exists(task->sched_info.last_queued))
		return 0;
	u64 since = task->sched_info.last_queued;
	if (!since || !cpu || !cpu->queue_offset_ns)
		return 0;
	s64 waited = (s64)(now - cpu->queue_offset_ns - since);
	if (waited <= 0)
		return 0;
	if (lifecycle.unseen_second != second) {
		lifecycle.unseen_second = second;
		lifecycle.unseen_count = 0;
	}
	if (__sync_fetch_and_add(&lifecycle.unseen_count, 1) >= UNSEEN_WAKEUPS_MOST)
		return 0;
	count_loss(LOSS_SWITCH_MISSED);
	u64 blocked = now - slot->last_ns;
	return (u64)waited < blocked ? (u64)waited : blocked;
}

/*
 * The thread is running, but no switch to it was reported: one kernel was seen to miss some
 * switches. The time that it has been running is what the scheduler counted since the thread left
 * the CPU, plus the time since the scheduler last updated its count.
 */
static __noinline void came_unseen(struct thread_slot *slot, struct task_struct *task, u64 now)
{
	u64 ran = task->se.sum_exec_runtime - slot->sched_cpu_ns;

	ran += uncounted_ns(task, now);
	if (ran > now - slot->last_ns)
		ran = now - slot->last_ns;
	if (slot->state >= STATE_BLOCKED_NETWORK)
		woken(slot, now - ran);
	charge(slot, now - ran);
	slot->state = STATE_ON_CPU;
	slot->run_start_ns = now - ran;
	read_clocks(task, now, &slot->came);
	pending_runs(slot, now - ran);
	count_loss(LOSS_SWITCH_MISSED);
}

/* The current thread reaches the kernel: phases whose functions have returned unseen end here. */
static __always_inline void end_returned(struct thread_slot *slot, struct task_struct *task,
					 u64 now)
{
	if (unlikely(may_have_returned(slot))) {
		struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(task);
		drop_returned(slot, now, REGS_SP(user));
	}
}

static __always_inline void switch_out(u64 *ctx, struct task_struct *task, u64 now, u64 left_as)
{
	bool exiting = task->flags & TASK_EXITING;
	struct thread_slot *slot = running_slot(task);
	struct wait wait;

	if (unlikely(!slot || slot->status != THREAD_LIVE))
		return;
	if (unlikely(slot->state != STATE_ON_CPU))
		came_unseen(slot, task, now);
	s64 handed_before_ns = slot->handed_ns;
	charge(slot, left_cpu(slot, task, now, !left_as));
	count_stay(task, slot, slot->handed_ns - handed_before_ns);
	if (unlikely(exiting && left_as & TASK_DEAD)) {
		read_last_counts(task, slot, now);
		slot->exit_ns = slot->last_ns;
		close_account(task);
		return;
	}
	slot->seen_count++;
	slot->sched_cpu_ns = task->se.sum_exec_runtime;
	if (unlikely(!left_as)) {
		if (config.covered_by_tracepoint)
			pending_preempted(task, slot, now);
		slot->state = STATE_RUNNABLE;
		return;
	}
	end_returned(slot, task, now);
	classify_wait(task, slot, &wait);
	if (config.flow)
		flow_wait(task, slot, &wait, now);
	else if (config.covered_by_tracepoint)
		pending_wait(task, slot, &wait, now);
	slot->wait_start_ns = now;
	if (bpf_core_field_exists(task->sched_info.run_delay))
		slot->block_wait_ns = task->sched_info.run_delay;
	slot->wait_syscall = wait.syscall;
	slot->state = wait.state;
	if (slot->depth == 0 &&
	    ((slot->flags & (FLAG_AWAIT | FLAG_POOL) && wait.state == STATE_BLOCKED_NETWORK) ||
	     (slot->flags & (FLAG_PARK | FLAG_POOL) && wait.condition)))
		slot->owner = PHASE_IDLE;
	if (unlikely(slot->handshake.active) && wait.state == STATE_BLOCKED_NETWORK)
		slot->handshake.network_wait_count++;
	walk_wait(ctx, task, slot);
}

static __always_inline void switch_in(struct task_struct *task, u64 now)
{
	u32 index = slot_index(task);
	struct thread_slot *slot = bpf_map_lookup_elem(&slots, &index);
	if (unlikely(!slot || slot->status != THREAD_LIVE))
		return;
	if (unlikely(slot->state >= STATE_BLOCKED_NETWORK))
		woken(slot, now - waited_unseen_ns(slot, task, now));
	charge(slot, now);
	slot->state = STATE_ON_CPU;
	slot->run_start_ns = now;
	read_clocks(task, now, &slot->came);
	slot->sched_cpu_ns = task->se.sum_exec_runtime;
	pending_runs(slot, now);
	struct cpu_counts *cpu = find_cpu(bpf_get_smp_processor_id());
	if (cpu) {
		cpu->clock_offset_ns = now - task->se.exec_start;
		cpu->arrived_ns = now;
		cpu->current_index = index;
		cpu->current = (u64)task;
	}
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	s32 tgid = config.tgid;
	bool out = prev->tgid == tgid, in = next->tgid == tgid;

	if (likely(!out && !in) || lifecycle.executed_ns || FAULT_DROPS_SWITCH())
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (unlikely(is_abandoned(now)))
		return 0;
	if (out) {
		bool preempted = ctx[0] & 0xff;
		u64 state = switch_state(ctx, prev, config.switch_has_state);
		switch_out(ctx, prev, now, preempted ? 0 : state);
	}
	if (in)
		switch_in(next, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	if (!is_target(task) || FAULT_DROPS_WAKEUP())
		return 0;
	struct thread_slot *slot = find_slot(task);
	if (!slot || slot->status != THREAD_LIVE || slot->state < STATE_BLOCKED_NETWORK)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (unlikely(is_abandoned(now)))
		return 0;
	woken(slot, now);
	woken_from_sleep(task, slot, now);
	return 0;
}

/* A new thread, which no CPU runs yet, or a new process. */
SEC("tp_btf/sched_process_fork")
int on_fork(u64 *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx[0];
	struct task_struct *child = (struct task_struct *)ctx[1];

	if (!is_target(parent) || FAULT_NO_ACCOUNT(child))
		return 0;
	if (child->tgid == parent->tgid)
		open_account(child, bpf_ktime_get_ns(), STATE_RUNNABLE, PHASE_BACKGROUND);
	else
		__sync_fetch_and_add(&lifecycle.forked_count, 1);
	return 0;
}

/* The process executed another program. The recording covers the previous one and ends here. */
SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	if (is_target(task))
		lifecycle.executed_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit_thread(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	if (!is_target(task))
		return 0;
	struct thread_slot *slot = find_slot(task);
	if (!slot) {
		close_account(task);
		return 0;
	}
	u64 now = bpf_ktime_get_ns();
	bool paused = slot->status == THREAD_PAUSED;
	if (slot->state != STATE_ON_CPU && !paused)
		came_unseen(slot, task, now);
	charge(slot, now);
	confirm_pending(slot, now);
	end_command(slot, now);
	put_aside(slot);
	if (slot->base == PHASE_DISCONNECT && !(slot->flags & FLAG_PARK))
		finished(slot, PHASE_DISCONNECT, now - slot->base_start_ns);
	__builtin_memcpy(slot->comm, task->comm, sizeof(slot->comm));
	if (paused) {
		read_last_counts(task, slot, now);
		slot->exit_ns = now;
		close_account(task);
	}
	return 0; /* its account ends with its last switch */
}

/* A dense phase's boundaries are detached with the scheduler's programs. */
static __always_inline bool is_dense(u32 phase)
{
	return phase == PHASE_RECORD_READ || phase == PHASE_RECORD_WRITE ||
	       phase == PHASE_COMMAND || phase == PHASE_TDE || phase == PHASE_IDLE;
}

/* The dense programs are detached: drop the state that only they would have ended. */
static __noinline int pause_thread(struct thread_slot *slot, u64 now)
{
	if (slot && slot->status == THREAD_PAUSED && control.paused == FORGOTTEN) {
		slot->depth = 0;
		slot->flags = 0;
		slot->call_sp = 0;
		slot->handshake.active = 0;
		if (slot->base != PHASE_BACKGROUND)
			slot->base = PHASE_UNKNOWN;
		slot->owner = slot->base;
		return 0;
	}
	if (!slot || slot->status != THREAD_LIVE)
		return 0;
	charge(slot, now);
	confirm_pending(slot, now);
	for (u32 depth = 0; depth < MAX_FRAMES; depth++)
		if (depth < slot->depth && is_dense(slot->frames[depth].phase))
			slot->depth = depth;
	if (is_dense(slot->base))
		slot->base = config.client ? PHASE_BACKGROUND : PHASE_UNKNOWN;
	slot->flags &= ~(FLAG_AWAIT | FLAG_WAIT_STACK | FLAG_BEGUN | FLAG_ANSWERED);
	slot->wait_sp = 0;
	slot->owner = innermost_phase(slot);
	slot->status = THREAD_PAUSED;
	return 0;
}

/* The dense programs are attached again: the account continues now, commands at a boundary. */
static __noinline int resume_thread(struct thread_slot *slot, struct task_struct *task, u64 now,
				    u32 state)
{
	if (!slot || slot->status != THREAD_PAUSED)
		return 0;
	charge(slot, now);
	if (slot->handshake.active)
		slot->handshake.unfollowed = 1;
	slot->last_ns = now;
	slot->phase_event_ns = now;
	slot->wait_start_ns = now;
	slot->run_start_ns = 0;
	slot->sched_cpu_ns = task->se.sum_exec_runtime;
	slot->state = state;
	slot->owner = innermost_phase(slot);
	if (slot->depth == 0 &&
	    ((slot->flags & (FLAG_PARK | FLAG_POOL) && state == STATE_BLOCKED_FUTEX) ||
	     (slot->flags & FLAG_POOL && state == STATE_BLOCKED_NETWORK)))
		slot->owner = PHASE_IDLE;
	slot->status = THREAD_LIVE;
	return 0;
}

/* What the thread does now. */
static __always_inline void present_state(struct task_struct *task, struct wait *wait)
{
	u64 state = task_state(task);

	wait->state = STATE_RUNNABLE;
	wait->syscall = -1;
	if (task->on_cpu)
		wait->state = STATE_ON_CPU;
	else if (state && !(state & TASK_NEW))
		classify_wait(task, NULL, wait);
}

/*
 * A thread that has no account yet. The switches before it has one are not seen, so its state is
 * looked at again afterwards: without that a thread that left its CPU in between would stay on it.
 */
static __always_inline void adopt(struct task_struct *task, struct wait *wait)
{
	bool serves =
		!config.client && task->pid != task->tgid && wait->state <= STATE_BLOCKED_NETWORK;
	u32 before = wait->state;
	struct thread_slot *slot = open_account(task, bpf_ktime_get_ns(), before,
						serves ? PHASE_UNKNOWN : PHASE_BACKGROUND);

	if (!slot) /* another one made it, and sees the thread end */
		return;
	if (task->flags & TASK_EXITING) { /* and on_exit_thread() may have found no account */
		close_account(task);
		return;
	}
	if (slot->run_start_ns)
		return;
	present_state(task, wait);
	if (wait->state != before)
		__sync_val_compare_and_swap(&slot->state, before, wait->state);
}

/*
 * Threads that exist when tlstax attaches: their state now, their phase at the next boundary. While
 * it records, those that had no room before.
 */
SEC("iter/task")
int each_thread(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct wait wait;
	if (!task || !is_target(task))
		return 0;
	struct thread_slot *slot = find_slot(task);
	if (control.paused && slot) {
		pause_thread(slot, bpf_ktime_get_ns());
		if (task->flags & TASK_EXITING) /* its last switch will not be seen */
			close_account(task);
		return 0;
	}
	if (!slot && task->flags & TASK_EXITING)
		return 0;
	present_state(task, &wait);
	if (slot)
		resume_thread(slot, task, bpf_ktime_get_ns(), wait.state);
	else
		adopt(task, &wait);
	return 0;
}

/* ---- boundaries ---- */

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

static __always_inline void enter_boundary(struct pt_regs *ctx, struct thread_slot *slot,
					   u64 cookie, u64 now)
{
	u64 sp = REGS_SP(ctx) + COOKIE_STACK_BYTES(cookie);
	u32 role = COOKIE_ROLE(cookie);
	u32 returns = COOKIE_UNSEEN_EXITS(cookie) ? FRAME_RETURNS : 0;
	u32 reading = config.flow ? PHASE_COMMAND : PHASE_RECORD_READ;
	u64 leads_to = returns ? return_address(ctx, sp, cookie) : 0;

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
		enter_phase(slot, now, sp, cookie, FRAME_OPEN, 0);
		break;
	case ACTION_PHASE:
	case ACTION_HANDSHAKE_BOUND:
		enter_phase(slot, now, sp, cookie, returns, leads_to);
		break;
	case ACTION_CALL:
		slot->role = ROLE_CONNECTION;
		enter_phase(slot, now, sp, cookie, returns, leads_to);
		break;
	case ACTION_PHASE_SEND:
		if (config.covered_by_tracepoint)
			slot->unsent_bytes = value_at(cookie);
		enter_phase(slot, now, sp, cookie,
			    config.covered_by_tracepoint ? FRAME_SENDS : returns, leads_to);
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
		if (slot->handshake.active)
			bpf_probe_read_user_str(slot->handshake.group, GROUP_BYTES,
						(void *)value_at(cookie));
		break;
	case ACTION_HANDSHAKE_FREE:
		enter_handshake_free(slot, now, value_at(cookie));
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

/* ---- sockets ---- */

/* The current thread's slot, if it belongs to the target and is recorded. */
static __always_inline struct thread_slot *socket_user(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_target(task))
		return NULL;
	struct thread_slot *slot = running_slot(task);
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
		received(slot, socket, now);
}

static __always_inline void send_ends(u64 socket, s32 result)
{
	struct thread_slot *slot = socket_user();
	u64 now = slot ? socket_used(slot) : 0;
	if (!now)
		return;
	count_send();
	if (config.flow)
		flow_sent(slot, socket, result, now);
	else
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

/* ---- samples ---- */

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 on_cpu = bpf_get_smp_processor_id();
	u64 one = 1;

	if (!is_target(task) || is_abandoned(bpf_ktime_get_ns()) || FAULT_DROPS_SAMPLE(on_cpu))
		return 0;
	struct thread_slot *slot = find_slot(task);
	struct cpu_counts *cpu = find_cpu(on_cpu);
	if (cpu && slot && slot->status == THREAD_LIVE)
		__sync_fetch_and_add(&cpu->sample_count, 1);
	struct sample_key key = {.phase = slot ? slot->owner : PHASE_UNKNOWN, .syscall = -1};
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(task);
	key.kernel_stack = -1;
	if (!REGS_IN_USER(&ctx->regs)) {
		key.syscall = (s32)SYSCALL_NUMBER(user);
		key.kernel_stack =
			walks_by_tables() ? walk_kernel(ctx, WALKER_SAMPLE) : walk_stack(ctx, 0);
		if (key.kernel_stack < 0)
			key.kernel_ip = REGS_IP(&ctx->regs);
	}
	key.user_stack = walks_by_tables()
				 ? walk_sample(task, !REGS_IN_USER(&ctx->regs), &key.user_ip)
				 : walk_stack(ctx, BPF_F_USER_STACK);
	if (key.user_stack < 0)
		key.user_ip = REGS_IP(user);
	u64 *count = bpf_map_lookup_elem(&samples, &key);
	if (!count) {
		if (!bpf_map_update_elem(&samples, &key, &one, BPF_NOEXIST))
			return 0;
		count = bpf_map_lookup_elem(&samples, &key); /* another CPU added it first */
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		count_loss(LOSS_SAMPLE_MAP_FULL);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * functions - how often, how long and over how many bytes a TLS library's own primitives run.
 *
 * Question: what do AES, SHA, RSA and ECDH cost, per call, per byte and per size of a record?
 * Emits: calls, bytes and time on the CPU per function, phase and size class, with the cost of
 *        the probes inside; a histogram of times per function and size class; losses.
 * Attaches: uprobes and uretprobes on the functions of the primitives of probes/libraries;
 *           tp_btf sched_switch.
 * Needs: BTF, task storage (kernel 5.15 or a backport); CAP_BPF and CAP_PERFMON, or root.
 * Blind to: functions without a symbol; the time of functions whose exit is not probed; what
 *           traps do to caches. A trap takes longer than an AES block: show it with the result.
 * Example: tlstax attach --name mysqld --functions cipher,digest --for 10s -o server.tlstax
 *          tlstax report server.tlstax
 */
#include "ktypes.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "buckets.bpf.h"
#include "compat.h"
#include "functions.h"
#include "heartbeat.bpf.h"
#include "slots.bpf.h"
#include "function_sums.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct function_config config SEC(".rodata.config") = {};
struct function_cost costs[MAX_FUNCTIONS] SEC(".data.costs") = {};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_calls);
} calls_of_task SEC(".maps");

/* ---- open calls ---- */

static __always_inline struct call *call_at(struct thread_calls *thread, u32 index)
{
	return &thread->calls[index & (MAX_CALLS - 1)];
}

/*
 * Drop calls that have ended although no exit was seen: longjmp, or a lost hit. A call
 * with the very stack pointer of this entry is over, too, unless it left by a jump into it.
 */
static __always_inline void drop_dead(struct thread_calls *thread, u64 sp, u32 function)
{
	for (int i = 0; i < MAX_CALLS; i++) {
		u32 depth = thread->depth;
		if (depth == 0 || depth > MAX_CALLS)
			return;
		struct call *top = call_at(thread, depth - 1);
		if (top->sp > sp)
			return;
		if (top->sp == sp && top->function != function && !top->jumped)
			return;
		thread->depth = depth - 1;
		lose(FUNCTION_LOSS_HEALED);
	}
}

/* The programs were idle since the outermost call began: which of them have ended is not known. */
static __always_inline void drop_unwatched(struct thread_calls *thread)
{
	u32 depth = thread->depth;

	if (!depth || depth > MAX_CALLS || thread->calls[0].start_ns >= heartbeat.resumed_ns)
		return;
	thread->depth = 0;
	lose_many(FUNCTION_LOSS_HEALED, depth);
}

static __always_inline void open_call(struct thread_calls *thread, u64 sp, u32 function, u32 phase,
				      u64 size_bytes)
{
	u32 depth = thread->depth;
	if (depth >= MAX_CALLS) {
		lose(FUNCTION_LOSS_STACK_OVERFLOW);
		return;
	}
	struct call *call = call_at(thread, depth);
	call->sp = sp;
	call->away_ns = thread->away_ns;
	call->nested_ns = 0;
	call->size_bytes = size_bytes;
	call->traps_ns = 0;
	call->direct_traps_ns = 0;
	call->phase = phase;
	call->function = function;
	call->jumped = 0;
	thread->depth = depth + 1;
	call->start_ns = bpf_ktime_get_ns(); /* last: excludes the cost of the entry */
}

/*
 * The outermost open call of the function that returned to `sp`: inner calls have ended. A global
 * function: the verifier does not follow each of its results.
 */
__noinline int find_call(struct thread_calls *thread, u64 sp, u32 function)
{
	int found = -1;
	if (!thread)
		return found;
	u32 depth = thread->depth;

	for (int i = 0; i < MAX_CALLS; i++) {
		if (depth == 0 || depth > MAX_CALLS)
			break;
		struct call *call = call_at(thread, --depth);
		if (call->sp >= sp)
			break;
		if (call->function == function)
			found = depth;
	}
	return found;
}

static __always_inline void close_call(struct thread_calls *thread, u32 index, u64 now, u64 size)
{
	struct call *call = call_at(thread, index);
	struct function_cost *cost = &costs[call->function & (MAX_FUNCTIONS - 1)];
	s64 spent = (s64)(now - call->start_ns - (thread->away_ns - call->away_ns));

	if (thread->depth > index + 1)
		lose_many(FUNCTION_LOSS_HEALED, thread->depth - index - 1);
	thread->depth = index;
	if (spent < 0)
		spent = 0;
	if (index > 0 && index < MAX_CALLS) {
		struct call *outer = call_at(thread, index - 1);
		outer->nested_ns += spent;
		outer->traps_ns += call->traps_ns + cost->pair_ns;
		outer->direct_traps_ns += cost->pair_ns - cost->inside_ns;
		outer->jumped = outer->sp == call->sp;
	}
	call->size_bytes = size;
	add_time(call, spent);
}

/* ---- programs ---- */

static __always_inline bool is_ours(struct task_struct *task)
{
	return task->tgid == config.tgid || task->tgid == config.own_tgid;
}

/* The number in the site's register; a value that is negative in its C type is not a size. */
static __always_inline u64 size_in_register(u64 cookie)
{
	struct pt_regs *user = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value),
			      (unsigned long *)user + REGISTER_PLACE(COOKIE_REGISTER(cookie)));
	s64 number = COOKIE_WIDE(cookie) ? (s64)value : (s32)value;
	return number > 0 ? number : 0;
}

static __always_inline u64 size_at_entry(u64 cookie)
{
	if (COOKIE_SOURCE(cookie) == SIZE_CONSTANT)
		return COOKIE_CONSTANT(cookie);
	return COOKIE_SOURCE(cookie) == SIZE_ARGUMENT ? size_in_register(cookie) : 0;
}

SEC("uprobe")
int on_function_enter(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	u32 function = COOKIE_FUNCTION(cookie);
	u64 sp = REGS_SP(ctx) + COOKIE_STACK_BYTES(cookie);
	u64 size = size_at_entry(cookie);

	if (!is_ours(task) || is_abandoned(bpf_ktime_get_ns()))
		return 0;
	struct thread_slot *slot = find_slot(task);
	u32 phase = slot ? slot->owner & (PHASES - 1) : PHASE_UNKNOWN;
	if (COOKIE_SOURCE(cookie) != SIZE_RETURNED)
		count_call(function, phase, size);
	struct thread_calls *thread =
		bpf_task_storage_get(&calls_of_task, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		lose(FUNCTION_LOSS_STORAGE_FAILED);
		return 0;
	}
	drop_unwatched(thread);
	drop_dead(thread, sp, function);
	if (COOKIE_TIMED(cookie)) {
		open_call(thread, sp, function, phase, size);
		return 0;
	}
	u32 depth = thread->depth;
	if (depth && depth <= MAX_CALLS) {
		struct call *outer = call_at(thread, depth - 1);
		outer->traps_ns += costs[function].pair_ns;
		outer->direct_traps_ns += costs[function].pair_ns;
	}
	return 0;
}

SEC("uretprobe")
int on_function_leave(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u64 cookie = bpf_get_attach_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	u32 function = COOKIE_FUNCTION(cookie);
	u64 sp = REGS_SP(ctx) + COOKIE_STACK_BYTES(cookie);

	if (!is_ours(task) || is_abandoned(now))
		return 0;
	struct thread_calls *thread = bpf_task_storage_get(&calls_of_task, task, NULL, 0);
	if (thread)
		drop_unwatched(thread);
	int index = thread ? find_call(thread, sp, function) : -1;
	if (!thread || index < 0 || index >= MAX_CALLS) {
		lose(FUNCTION_LOSS_UNMATCHED_EXIT);
		return 0;
	}
	struct call *call = call_at(thread, index);
	u64 size = call->size_bytes;
	if (COOKIE_SOURCE(cookie) == SIZE_RETURNED) {
		size = size_in_register(cookie);
		count_call(function, call->phase, size);
	}
	close_call(thread, index, now, size);
	return 0;
}

/*
 * Time off the CPU is excluded. Where the thread blocks, it starts when the scheduler stops the
 * thread's clock, which is before the tracepoint; the more runnable threads there are, the longer
 * before. A thread that is preempted runs until the switch: see left_cpu() of scheduler.bpf.h.
 */
static __always_inline void left_cpu(struct thread_calls *thread, struct task_struct *task, u64 now,
				     bool runnable)
{
	u64 counted = task->se.sum_exec_runtime - thread->sched_ns;
	s64 gap = (s64)(now - thread->came_ns - counted);

	thread->left_ns = now;
	if (!runnable && thread->came_ns && gap > 0 && gap <= SWITCH_GAP_NS)
		thread->left_ns = now - gap;
}

SEC("tp_btf/sched_switch")
int on_function_switch(u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	struct thread_calls *thread;

	if (is_ours(prev)) {
		thread = bpf_task_storage_get(&calls_of_task, prev, NULL, 0);
		if (thread && thread->depth)
			left_cpu(thread, prev, bpf_ktime_get_ns(),
				 ctx[0] & 0xff || !task_state(prev));
	}
	if (is_ours(next)) {
		thread = bpf_task_storage_get(&calls_of_task, next, NULL, 0);
		if (thread) {
			u64 now = bpf_ktime_get_ns();
			if (thread->left_ns)
				thread->away_ns += now - thread->left_ns;
			thread->left_ns = 0;
			thread->came_ns = now;
			thread->sched_ns = next->se.sum_exec_runtime;
		}
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "window.h"

#include <bpf/bpf.h>
#include <string.h>

#include "function_probes.h"
#include "metering.h"
#include "output.h"
#include "proc.h"
#include "quota.h"
#include "session.h"
#include "stream.h"
#include "suspend.h"
#include "totals.h"
#include "walks.h"
#include "watchdog.h"

/* Fewer than a tenth of the walks of waits that may be: twice as many are made. */
enum { FEW = 10, SHARE_MOST = 1 << 12, ATTEMPTS = 3, MUCH = 8 };

#define SOON_NS (25 * NS_PER_MS)  /* after a drain that found much */
#define CALM_NS (500 * NS_PER_MS) /* after a look that found little */

/* With fewer, each account of a thread that ended is taken out soon. */
enum { SLOTS_OF_MANY = 1024 };

/* A client waits once per query, and their rate is unknown at first: few stacks are walked. */
enum { SHARE_OF_CLIENT = 64 };

/* Exits without entries, and repairs: no losses while probes are attached or detached. */
static const enum loss of_turning[LOSSES_OF_TURNING] = {
	LOSS_HEALED, LOSS_UNMATCHED_EXIT, LOSS_SWITCH_MISSED, LOSS_CLOCK_RETRY_FAILED};

void window_set_walks(struct engine *engine, double most, bool is_server)
{
	session->windows.walks_most = most;
	if (!is_server)
		engine_set_wait_share(engine, session->windows.wait_share = SHARE_OF_CLIENT);
}

void window_turning(const struct engine *engine)
{
	for (u32 i = 0; i < COUNT(of_turning); i++)
		session->windows.before_turning[i] = engine->losses[of_turning[i]];
}

void window_turned(const struct engine *engine)
{
	for (u32 i = 0; i < COUNT(of_turning); i++)
		session->windows.left_out[i] +=
			engine->losses[of_turning[i]] - session->windows.before_turning[i];
}

/*
 * The kernel's counts of threads are compared over several windows: reading them for each would be
 * most of what the recorder costs with thousands of threads. See docs/decisions/0039. At first they
 * are read sooner, so that there is a reference if the recording or the target ends soon: after
 * windows of 1 s in the 1st, 3rd, 9th and 19th. With thousands of threads they are read less often.
 */
#define COUNTS_NS (10 * NS_PER_S)
#define COUNTS_MOST_NS (30 * NS_PER_S)
#define COUNTS_PART 20000 /* of a CPU at most; accounts with new counts cost as much again */
#define EARLY_NS (500 * NS_PER_MS) /* windows are not of equal length */

/* Whether the kernel's counts are read where this window ends. */
static bool are_counts_due(const struct windows *windows, const struct engine *engine,
			   const struct window_end *end)
{
	u64 pause_ns = 2 * (windows->counts_ns - windows->first_counts_ns);
	u64 most_ns = windows->counts_cost_ns * COUNTS_PART;

	most_ns = most_ns < COUNTS_NS ? COUNTS_NS : most_ns;
	most_ns = most_ns > COUNTS_MOST_NS ? COUNTS_MOST_NS : most_ns;
	pause_ns = pause_ns > most_ns ? most_ns : pause_ns;
	if (!has_ledger(end->level))
		return end->restarts;
	return end->restarts || end->is_outer || !windows->number || windows->has_unsent_counts ||
	       engine->lifecycle->untracked_count ||
	       end->ns + EARLY_NS >= windows->counts_ns + pause_ns;
}

/* Read them. The target's CPU clock, read just before, with what it does not have yet. */
static u64 read_counts(const struct engine *engine, int pid, struct process_counts *counts)
{
	u64 clock = 0;

	for (int i = 0; i < ATTEMPTS; i++) {
		memset(engine->process_counts, 0, sizeof(*counts));
		for (u32 cpu = 0; cpu < engine->cpus_count; cpu++)
			engine->cpus[cpu].running_ns = 0;
		clock = clock_ns(process_clock(pid));
		engine_iterate(engine->each_counts);
		*counts = *engine->process_counts;
		/* Else a thread ended meanwhile: its switches are in both sums, or in none. */
		if (counts->ended_switch_count == counts->ended_before_count)
			break;
	}
	return clock ? clock + counts->uncounted_ns : ~0ULL;
}

/* Keep stack walks of waits cheap: a smaller share at once, a larger one step by step. */
static void tune_waits(struct engine *engine, u64 walked, u64 span_ns)
{
	u64 least_ns = 50 * NS_PER_MS;
	u32 share = session->windows.wait_share;
	double walks =
		(double)walked / share * 1e9 / (double)(span_ns > least_ns ? span_ns : least_ns);

	if (walks < session->windows.walks_most / FEW && share > 1)
		share /= 2;
	for (; walks > session->windows.walks_most && share < SHARE_MOST; walks /= 2)
		share *= 2;
	if (share != session->windows.wait_share)
		engine_set_wait_share(engine, share);
	session->windows.wait_share = share;
}

/* A cost is a price times a count less another: disturbed ones may be below nothing. */
static u64 told_ns(double ns)
{
	return ns > 0 ? (u64)ns : 0;
}

static void describe(const struct windows *windows, const struct engine *engine,
		     const struct window_end *end, struct stream_window *window)
{
	const struct process_counts *counts = &windows->counts;
	struct lifecycle life;
	struct tcp_counts tcp = tcp_counts(&session->quota);
	u64 host[5];

	engine_read_lifecycle(engine, &life);
	read_host_times(host);
	window->number = windows->number;
	window->executed_ns = life.executed_ns;
	window->switch_count = counts->switch_count + counts->ended_switch_count;
	window->thread_count = counts->thread_count;
	window->account_count = counts->account_count;
	window->has_wait = counts->has_wait;
	window->forked_count = life.forked_count;
	window->untracked_count = life.untracked_count;
	window->wait_share = session->windows.wait_share;
	window->timed = statistics_are_on();
	window->merged_count = windows->merged_count;
	window->own_cpu_ns = session_cpu_ns();
	window->resident_bytes = windows->resident_bytes;
	window->host_user_ns = host[0];
	window->host_system_ns = host[1];
	window->host_interrupt_ns = host[2];
	window->host_steal_ns = host[3];
	window->host_idle_ns = host[4];
	window->delayed_ack_count = tcp.delayed_acks;
	window->listen_drop_count = tcp.listen_overflows;
	for (u32 i = 0; i < LOSSES; i++)
		window->losses[i] = engine->losses[i];
	window->losses[LOSS_PROBE_RECURSION_MISSED] += missed_runs();
	window->losses[LOSS_RECORDER_STARVED] = windows->starved_count;
	window->losses[LOSS_CLOCK_RETRY_FAILED] += session->accounts.torn_count;
	for (u32 i = 0; i < COUNT(of_turning); i++)
		window->losses[of_turning[i]] -= session->windows.left_out[i];
	walks_count(window->walks);
	window->end_ns = life.executed_ns ? life.executed_ns : end->ns;
	window->probes_ns = told_ns(end->span.spent.probes_ns);
	window->scheduler_ns = told_ns(end->span.spent.scheduler_ns);
	window->neighbours_ns = told_ns(end->span.spent.neighbours_ns);
	window->samples_ns = told_ns(end->span.spent.samples_ns);
	window->restarts = end->restarts;
	window->is_stretch = end->parts != NULL;
	if (end->parts)
		memcpy(window->part_ns, end->parts, sizeof(window->part_ns));
	window->suspended_ns = suspended_ns();
	strcpy(window->level, end->level == LEVEL_NONE ? "none" : level_names[end->level]);
}

static bool give_up(void)
{
	output_rollback();
	accounts_forget();
	counters_forget();
	function_sums_forget();
	quota_forget(&session->quota);
	return false;
}

static bool no_room(struct windows *windows)
{
	give_up();
	windows->merged_count++;
	windows->is_full = true;
	return false;
}

bool window_cut(struct windows *windows, struct engine *engine, const struct target *target,
		const struct window_end *end)
{
	u64 walked = 0, cpu_ns = end->target_cpu_ns ? end->target_cpu_ns : ~0ULL;
	bool is_base = !windows->number, has_counts = are_counts_due(windows, engine, end);

	if (has_counts) {
		u64 before_ns = session_cpu_ns();
		cpu_ns = read_counts(engine, target->pid, &windows->counts);
		windows->counts_cost_ns = session_cpu_ns() - before_ns;
		if (cpu_ns != ~0ULL && schedule_goes_on())
			target_clock_base(&session->meter.target_clock, engine, cpu_ns,
					  windows->counts.thread_count);
	}
	if (has_counts || !has_ledger(end->level))
		windows->resident_bytes = read_resident_bytes();
	windows->has_unsent_counts = has_counts;
	if (!handshakes_drain(engine, is_base) || !accounts_put(engine, false) ||
	    !counters_put(engine, has_counts, has_counts || end->is_outer) ||
	    !function_sums_put() || !quota_put(&session->quota))
		return no_room(windows);
	u64 read_ns = monotonic_ns();
	if (!output_has_room(sizeof(struct stream_window)))
		return no_room(windows);
	/* It may have got no CPU while it read: then the programs were idle, and parts are missing.
	 * A lapse begins. What is read from here on cannot be read again. */
	watchdog_beat();
	if (watchdog_missed() && session->progress == PROGRESS_RECORDING)
		return give_up();
	samples_drain(engine, &walked, is_base);
	walks_put(); /* those that samples and waits refer to */
	struct stream_window *window = output_put_alone(STREAM_WINDOW, sizeof(*window));
	if (!window) /* cannot be: samples_drain() leaves room for it */
		return no_room(windows);
	describe(windows, engine, end, window);
	window->has_counts = has_counts;
	window->read_ns = read_ns;
	window->process_cpu_ns = cpu_ns;
	output_commit();
	windows->has_unsent_counts = false;
	if (has_counts)
		windows->counts_ns = end->ns;
	if (is_base || end->restarts)
		windows->first_counts_ns = windows->counts_ns;
	accounts_recycle(engine);
	if (!is_base) {
		if (has_ledger(end->level))
			tune_waits(engine, walked, end->ns - session->windows.last_end_ns);
		engine_keep_up(engine, target);
	}
	session->windows.last_end_ns = end->ns;
	windows->number++;
	windows->is_full = false;
	return true;
}

static bool is_part(u64 used, u64 size)
{
	return used > size / MUCH;
}

/* Whether there is so much room that all can stay where it is until the window ends. */
static bool is_calm(const struct engine *engine)
{
	u64 ended_count = accounts_ended_count(engine);

	return !is_part(ring_waiting_bytes(&engine->records), engine->records.bytes) &&
	       !is_part(ended_count, engine->settings.slots) &&
	       (!ended_count || engine->settings.slots >= SLOTS_OF_MANY) && !walks_are_waiting();
}

u64 window_pause_ns(const struct engine *engine)
{
	return is_calm(engine) ? CALM_NS : DRAIN_NS;
}

u64 window_drain(struct engine *engine)
{
	u64 waiting_bytes = ring_waiting_bytes(&engine->records);
	u32 ended_count = 0;

	if (is_calm(engine))
		return CALM_NS;
	walks_put();
	handshakes_drain(engine, false);
	if (accounts_put(engine, true)) {
		output_commit();
		ended_count = accounts_recycle(engine);
	} else {
		output_rollback();
		accounts_forget();
	}
	bool found_much = is_part(ended_count, engine->settings.slots) ||
			  is_part(waiting_bytes, engine->records.bytes);
	return found_much ? SOON_NS : DRAIN_NS;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "schedule.h"

#include <string.h>

#include "failure.h"
#include "metering.h"
#include "output.h"
#include "pace.h"
#include "stream.h"

#define DRAIN_NS (250 * NS_PER_MS)
#define DRAIN_SOON_NS (25 * NS_PER_MS) /* after a drain that found much */
#define RETRY_NS (100 * NS_PER_MS)     /* after a window that had no room */
#define READER_CUT_NS 5e6	       /* what a window costs who reads it, until that is known */

/* Without a budget the kernel times the programs in the first of so many windows, until the target
 * was busy in one. */
enum { TIMED_EVERY = 31 };
#define NEVER_NS (1ULL << 62)

static struct {
	const struct options *options;
	struct windows *windows;
	struct engine *engine;
	const struct plan *plan;
	const struct target *target;
	double budget; /* 0: none */
	int most, level;
	bool is_trial;
	struct pace pace;
	u64 next_ns, look_ns, drain_ns, watch_ns;
	u64 reader_ns;		/* at the end of the last window */
	double cut_ns, turn_ns; /* CPU time, below 0: nothing was attached or detached */
} state;

/* The end of the last window that was sent, of the last that was accounted for, and when the
 * present step began. */
static struct reading sent, settled, watched, now;

static u64 own_cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static bool cut(int level, bool restarts)
{
	struct window_end end = {.ns = now.time_ns, .level = level, .restarts = restarts};
	u64 before_ns = own_cpu_ns();

	meter_span(&sent, &now, level, &end.span);
	bool is_cut = window_cut(state.windows, state.engine, state.target, &end);
	state.cut_ns = (double)(own_cpu_ns() - before_ns);
	if (is_cut)
		sent = now;
	return is_cut;
}

static int turn(int level)
{
	u64 before_ns = own_cpu_ns();

	if (level == state.level)
		return 0;
	window_turning(state.engine);
	int error = engine_go(state.engine, state.plan, state.target, level);
	window_turned(state.engine);
	state.level = level;
	statistics_turn(has_ledger(level));
	state.turn_ns =
		(state.turn_ns > 0 ? state.turn_ns : 0) + (double)(own_cpu_ns() - before_ns);
	return error;
}

bool schedule_begin(const struct options *options, struct windows *windows, struct engine *engine,
		    const struct plan *plan, const struct target *target)
{
	struct window_end base = {.ns = monotonic_ns()};

	state.options = options;
	state.windows = windows;
	state.engine = engine;
	state.plan = plan;
	state.target = target;
	state.most = state.level = base.level = (int)engine->settings.level;
	state.budget = options->budget;
	state.is_trial = state.budget > 0;
	state.turn_ns = -1;
	budget_set_floor(options->floor_cpus);
	window_set_walks(options->walks_most);
	meter_prepare(engine, plan, target);
	pace_open(&state.pace, options->budget, state.most, options->window_ns, (u64)target->pid);
	if (!window_cut(windows, engine, target, &base))
		return false;
	meter_read(&now);
	sent = settled = watched = now;
	state.next_ns = now.time_ns + (state.is_trial ? TRIAL_NS : options->window_ns);
	state.look_ns = ~0ULL;
	state.drain_ns = now.time_ns + DRAIN_NS;
	return true;
}

u64 schedule_wake_ns(void)
{
	u64 wake_ns = state.next_ns < state.look_ns ? state.next_ns : state.look_ns;

	return wake_ns < state.drain_ns ? wake_ns : state.drain_ns;
}

/* The window goes on as it is. */
static int stay(void)
{
	state.pace.step.level = state.level;
	state.next_ns = monotonic_ns() + RETRY_NS;
	state.look_ns = ~0ULL;
	return 0;
}

/*
 * Go on to the level of a step. The ledger's programs are attached before its window begins, and
 * detached after it has ended.
 */
static int follow(struct step step, bool is_cut)
{
	int before = state.level;
	bool rises = has_ledger(step.level) && !has_ledger(before);

	if (!rises && !is_cut && !cut(before, false))
		return stay();
	if (turn(step.level))
		return -1;
	if (rises) {
		meter_read(&now);
		if (!cut(before, true))
			return turn(before) ? -1 : stay();
	}
	meter_read(&watched);
	state.watch_ns = step.watch_ns;
	state.look_ns = watched.time_ns + step.watch_ns;
	state.next_ns = watched.time_ns + step.length_ns;
	return 0;
}

static int put_budget(void)
{
	struct stream_budget *budget = output_put_alone(STREAM_BUDGET, sizeof(*budget));
	const struct choice *choice = &state.pace.choice;

	if (!budget)
		return fail(EXIT_CODE_USAGE, "the queue is too small: give more than --queue %zuK",
			    state.options->queue_bytes >> 10);
	budget->share_ppm = (u64)(state.budget * 1e6 + 0.5);
	budget->base_ns = (u64)(load_base(&state.pace.load) * (double)NS_PER_S);
	budget->dense_ns = choice->dense_ns;
	budget->cycle_ns = choice->cycle_ns;
	budget->probes_ns = (u64)choice->predicted.probes_ns;
	budget->scheduler_ns = (u64)choice->predicted.scheduler_ns;
	budget->samples_ns = (u64)choice->predicted.samples_ns;
	budget->recorder_ns = (u64)choice->predicted.recorder_ns;
	strcpy(budget->dense, level_names[choice->dense]);
	strcpy(budget->light, choice->light == LEVEL_NONE ? "none" : level_names[choice->light]);
	output_commit();
	return 0;
}

/* What is on between dense windows, most likely. */
static int light_of(int most)
{
	return has_ledger(most) ? LEVEL_HANDSHAKE : most - 1;
}

/*
 * Try what it costs to turn the dense programs off. Probes that fired while they were being
 * detached show how long that takes.
 */
static int try_turn(const struct span *trial, struct load *load)
{
	double rate = (trial->spent.probes_ns + trial->spent.scheduler_ns) /
		      (double)(trial->length_ns ? trial->length_ns : 1);
	struct span tail;

	if (turn(light_of(state.most)))
		return -1;
	meter_read(&watched);
	meter_span(&now, &watched, state.level, &tail);
	load->turn_ns = 2 * state.turn_ns;
	load->tail_ns = rate > 0 ? (tail.spent.probes_ns + tail.spent.scheduler_ns) / rate : 0;
	return 0;
}

/* The trial is over: choose by what it cost. */
static int judge(void)
{
	struct choice choice;
	struct span trial;
	struct load load;

	meter_read(&now);
	meter_span(&settled, &now, state.level, &trial);
	if (!cut(state.level, false))
		return stay();
	settled = now;
	state.is_trial = false;
	meter_load(&trial, &load);
	load.cut_ns = state.cut_ns + (state.options->reader ? READER_CUT_NS : 0);
	bool is_simple = budget_choose(&load, state.budget, state.most, state.options->window_ns,
				       false, &choice) &&
			 is_continuous(&choice) && choice.dense == state.most;
	if (!is_simple && try_turn(&trial, &load))
		return -1;
	bool fits = pace_begin(&state.pace, &load, &trial);
	if (!fits && !state.options->or_everything) {
		budget_refuse(&load, state.budget);
		return -1;
	}
	struct step step = {state.most, state.options->window_ns, NEVER_NS};
	if (fits) {
		step = pace_first(&state.pace);
		meter_count_reader(state.options->reader);
	} else {
		state.budget = 0;
		state.pace.choice = budget_everything(&load, state.most, state.options->window_ns);
	}
	return put_budget() ? -1 : follow(step, true);
}

static int end_window(void)
{
	struct span span;

	meter_read(&now);
	meter_span(&settled, &now, state.level, &span);
	u64 reader_ns = meter_reader_ns();
	double read_ns = (double)(reader_ns - state.reader_ns);
	double idle_ns = (double)(now.own_cpu_ns - watched.own_cpu_ns) - read_ns;
	u64 since_ns = now.time_ns - watched.time_ns;
	struct own_costs own = {
		.cut_ns = state.cut_ns + read_ns,
		.turn_ns = state.turn_ns,
		.watch = idle_ns > 0 && since_ns ? idle_ns / (double)since_ns : 0,
	};
	state.reader_ns = reader_ns;
	state.turn_ns = -1;
	settled = now;
	return follow(pace_ended(&state.pace, &span, &own), false);
}

/* Without a budget the next window is like the last. */
static int go_on(void)
{
	static bool saw_load;

	meter_read(&now);
	u64 cpu_ns = now.target_cpu_ns - sent.target_cpu_ns, span_ns = now.time_ns - sent.time_ns;
	if (state.windows->number % TIMED_EVERY == 0)
		saw_load = false;
	else if (statistics_are_on() && (double)cpu_ns >= FLOOR_CPUS * (double)span_ns)
		saw_load = true;
	cut(state.level, false);
	statistics_turn(!saw_load);
	state.next_ns = monotonic_ns() + state.options->window_ns;
	return 0;
}

static void look(void)
{
	struct span span;

	meter_read(&now);
	meter_span(&watched, &now, state.level, &span);
	state.look_ns = now.time_ns + state.watch_ns;
	if (pace_overspends(&state.pace, &span))
		state.next_ns = now.time_ns;
}

int schedule_step(void)
{
	u64 time_ns = monotonic_ns();

	if (time_ns >= state.next_ns) {
		int error = state.is_trial ? judge() : state.budget > 0 ? end_window() : go_on();
		state.drain_ns = monotonic_ns() + DRAIN_NS;
		return error;
	}
	if (time_ns >= state.look_ns)
		look();
	if (time_ns >= state.drain_ns) {
		bool found_much = window_drain(state.engine);
		state.drain_ns = monotonic_ns() + (found_much ? DRAIN_SOON_NS : DRAIN_NS);
	}
	return 0;
}

bool schedule_cut_last(void)
{
	static bool is_read;

	if (!is_read)
		meter_read(&now);
	is_read = true;
	return cut(state.level, false);
}

// SPDX-License-Identifier: GPL-2.0-only
#include "schedule_steps.h"

#include <string.h>

#include "failure.h"
#include "output.h"
#include "stream.h"
#include "stretches.h"
#include "watchdog.h"
#include "whole_stretches.h"

#define RETRY_NS (100 * NS_PER_MS)	/* after a window that had no room */
#define READ_AFTER_NS (200 * NS_PER_MS) /* at looks after that, the window before has been read */
#define TRIAL_LOOK_NS (10 * NS_PER_MS)
#define STRETCH_LOOK_NS (20 * NS_PER_MS)
#define STRETCH_LATER_NS (500 * NS_PER_MS) /* after one for which there was no room */

bool cut(int level, enum edge edge)
{
	u64 parts[PARTS];
	struct window_end end = {
		.ns = state.now.time_ns,
		.level = level,
		.restarts = edge == EDGE_RESTART,
		.is_outer = edge != EDGE_INNER || state.asked_ns,
		.target_cpu_ns = state.now.target_cpu_ns,
	};
	u64 before_ns = session_cpu_ns();

	bool is_past = state.asked_ns > state.last_end_ns && state.asked_ns < end.ns;
	if (is_past && edge != EDGE_RESTART)
		end.ns = state.asked_ns;
	meter_span(&state.sent, &state.now, level, &end.span);
	end.span.spent.probes_ns += state.sent_more_ns;
	tell_carried(&end.span.spent);
	if (state.stretch.begins)
		stretch_begin(state.now.time_ns);
	if (state.stretch.is_on && state.now.time_ns >= state.stretch.end_ns) {
		stretch_end(state.now.time_ns, parts);
		end.parts = parts;
	}
	bool is_cut = window_cut(state.windows, state.engine, state.target, &end);
	state.cut_ns = (double)(session_cpu_ns() - before_ns);
	if (is_cut) {
		state.sent = state.now;
		state.sent_more_ns = 0;
		state.carried = (struct overhead){0};
		state.asked_ns = 0;
		state.last_end_ns = end.ns;
	}
	return is_cut;
}

int turn(int level)
{
	u64 before_ns = session_cpu_ns();

	if (level == state.level)
		return 0;
	if (!has_ledger(level))
		target_clock_stop(&session->meter.target_clock);
	window_turning(state.engine);
	if (level > state.level) /* what is attached is timed from its first run on */
		statistics_at(level);
	int error = engine_go(state.engine, state.plan, state.target, level);
	window_turned(state.engine);
	state.level = level;
	statistics_at(level);
	state.turn_ns =
		(state.turn_ns > 0 ? state.turn_ns : 0) + (double)(session_cpu_ns() - before_ns);
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
	window_set_walks(engine, options->walks_most, plan->role == 0);
	meter_prepare(engine, plan, target);
	pace_open(&state.pace, options->budget, state.most, options->window_ns, (u64)target->pid);
	programs_read(engine);
	if (!window_cut(windows, engine, target, &base))
		return false;
	state.last_end_ns = base.ns;
	meter_read(&state.now, false);
	stretches_spent_ns(); /* up to here it belongs to attaching */
	state.sent = state.settled = state.watched = state.now;
	state.next_ns = state.now.time_ns + (state.is_trial ? TRIAL_NS : options->window_ns);
	state.look_ns = state.is_trial ? state.now.time_ns + TRIAL_LOOK_NS : ~0ULL;
	state.watch_ns = TRIAL_LOOK_NS;
	state.drain_ns = state.now.time_ns + DRAIN_NS;
	return true;
}

void schedule_note_level(const struct level_choice *choice)
{
	state.chosen = *choice;
}

bool schedule_goes_on(void)
{
	bool is_all = state.budget <= 0 || (!state.is_trial && is_continuous(&state.pace.choice));

	return is_all && has_ledger(state.level);
}

u64 schedule_wake_ns(void)
{
	u64 soon_ns = monotonic_ns() + DRAIN_NS; /* the watchdog waits for a beat */

	if (state.is_lapsed)
		return state.next_ns < soon_ns ? state.next_ns : soon_ns;
	u64 wake_ns = state.next_ns < state.look_ns ? state.next_ns : state.look_ns;

	if (!state.stretch.is_on && stretch_due_ns() < wake_ns)
		wake_ns = stretch_due_ns();
	return wake_ns < state.drain_ns ? wake_ns : state.drain_ns;
}

/* The window goes on as it is. */
int stay(void)
{
	state.pace.step.level = state.level;
	state.next_ns = monotonic_ns() + RETRY_NS;
	state.look_ns = ~0ULL;
	return 0;
}

/*
 * Go on to the level of a step. What it has more is attached before its window begins, and what it
 * has less is detached after the one before has ended: all of a window has what its level says. One
 * without room is part of one with less if that is next, and nothing more is attached then.
 */
int follow(struct step step, bool is_cut)
{
	bool rises = has_ledger(step.level) && !has_ledger(state.level);
	bool needs_end = !is_cut && (step.level <= state.level || state.windows->is_full);

	if (needs_end && !cut(state.level, step.level == state.level ? EDGE_INNER : EDGE_OUTER)) {
		if (step.level >= state.level)
			return stay();
		carry_cost();
	}
	if (step.level > state.level && !may_rise(state.rose_in_vain))
		return stay();
	return rises && price_is_wanted() ? price_begin(step) : enter(step);
}

int enter(struct step step)
{
	int before = state.level;
	bool rises = has_ledger(step.level) && !has_ledger(before);

	if (turn(step.level) || follow_with_stretches())
		return -1;
	statistics_at(step.level);
	if (step.level > before) {
		read_now();
		state.rose_in_vain = !cut(before, rises ? EDGE_RESTART : EDGE_OUTER);
		if (state.rose_in_vain)
			return fall_back(before);
	}
	read_watched();
	state.watch_ns = step.watch_ns;
	state.look_ns = state.watched.time_ns + step.watch_ns;
	state.next_ns = state.watched.time_ns + step.length_ns;
	return 0;
}

static int end_window(void)
{
	struct span span;

	if (price_is_compared()) /* as exactly as the arm without probes */
		read_now();
	else
		read_again();
	price_window_ended();
	settle(&span);
	u64 reader_ns = meter_reader_ns();
	u64 until_ns = state.looked_reader_ns ? state.looked_reader_ns : reader_ns;
	double read_ns = (double)(until_ns - state.reader_ns);
	double idle_ns = (double)(state.now.own_cpu_ns - state.watched.own_cpu_ns) - read_ns;
	u64 since_ns = state.now.time_ns - state.watched.time_ns;
	struct own_costs own = {
		.cut_ns = state.cut_ns,
		.read_ns = read_ns,
		.turn_ns = state.turn_ns,
		.watch = idle_ns > 0 && since_ns ? idle_ns / (double)since_ns : 0,
	};
	state.reader_ns = reader_ns;
	state.looked_reader_ns = 0;
	state.turn_ns = -1;
	state.settled = state.now;
	return follow(pace_ended(&state.pace, &span, &own), false);
}

/* Without a budget the next window is like the last. */
static int go_on(void)
{
	read_again();
	statistics_saw(&state.sent, &state.now, state.windows->number);
	if (state.level != state.most) /* there was no room for it before */
		return follow((struct step){state.most, state.options->window_ns, NEVER_NS}, false);
	cut(state.level, EDGE_INNER);
	statistics_sparingly();
	whole_put(); /* if there was no room for it before */
	/* Who asked for its end waits for that: it comes as soon as there is room. */
	state.next_ns = monotonic_ns() + (state.asked_ns ? RETRY_NS : state.options->window_ns);
	return 0;
}

static void look(void)
{
	struct span span;

	read_again();
	if (!state.looked_reader_ns && state.now.time_ns - state.watched.time_ns >= READ_AFTER_NS)
		state.looked_reader_ns = meter_reader_ns();
	meter_span(&state.watched, &state.now, state.level, &span);
	span.spent.probes_ns += state.watched_more_ns;
	state.look_ns =
		state.now.time_ns + (state.stretch.is_on ? STRETCH_LOOK_NS : state.watch_ns);
	bool overspends = state.is_trial ? trial_overspends(&span, state.budget)
					 : pace_overspends(&state.pace, &span);
	if (overspends ||
	    (state.stretch.is_on && state.stretch.spent_ns > state.stretch.allowed_ns))
		state.next_ns = state.now.time_ns;
}

static bool may_stretch(void)
{
	if (state.is_trial || state.level != state.most || state.windows->is_full)
		return false;
	return state.budget <= 0 || pace_affords(&state.pace, state.stretch.cost_ns);
}

/* Attach what a stretch needs, then end the window before it. */
static int begin_stretch(void)
{
	u64 before_ns = session_cpu_ns(), number = state.windows->number;

	if (!may_stretch()) {
		stretch_plan_next(STRETCH_LATER_NS);
		return 0;
	}
	state.stretch.allowed_ns = state.budget > 0 ? state.pace.account.balance_ns : 1e18;
	if (stretch_attach())
		return -1;
	state.stretch.attach_ns = (double)(session_cpu_ns() - before_ns);
	state.watched.own_cpu_ns += (u64)state.stretch.attach_ns; /* no work between two windows */
	watchdog_beat();
	state.stretch.begins = true;
	int error = state.budget > 0 ? end_window() : go_on();
	state.stretch.begins = false;
	if (error)
		return -1;
	if (state.windows->number == number || state.level != state.most) {
		stretch_plan_next(STRETCH_LATER_NS);
		return stretch_detach() || follow_with_stretches() ? -1 : 0;
	}
	statistics_turn(true);
	state.stretch.is_on = true;
	state.stretch.spent_ns = 0;
	state.stretch.end_ns = state.next_ns = state.now.time_ns + STRETCH_NS;
	state.look_ns = state.budget > 0 ? state.now.time_ns + STRETCH_LOOK_NS : ~0ULL;
	return 0;
}

void schedule_end_window(u64 ns)
{
	if (ns && ns <= state.last_end_ns)
		return;
	state.asked_ns = ns ? ns : monotonic_ns();
	if (!state.is_lapsed)
		state.next_ns = monotonic_ns();
}

/* Its window has ended. One that cost too much ended early; it is not told. */
static int finish_stretch(void)
{
	u64 length_ns = STRETCH_NS - (state.now.time_ns < state.stretch.end_ns
					      ? state.stretch.end_ns - state.now.time_ns
					      : 0);
	double part = (double)length_ns / (double)STRETCH_NS;

	u64 before_ns = session_cpu_ns();
	int error = stretch_detach();
	double detach_ns = (double)(session_cpu_ns() - before_ns);
	state.watched.own_cpu_ns += (u64)detach_ns;
	state.stretch.is_on = false;
	state.stretch.cost_ns =
		(part > 0 ? state.stretch.spent_ns / part : state.stretch.spent_ns) +
		state.stretch.attach_ns + detach_ns + 2 * state.pace.load.cut_ns +
		state.pace.load.read_ns;
	stretch_plan_next(0);
	return error || follow_with_stretches() ? -1 : 0;
}

int schedule_step(void)
{
	u64 time_ns = monotonic_ns();

	if (state.is_lapsed)
		return time_ns >= state.next_ns ? schedule_resume() : 0;
	if (time_ns >= state.next_ns && state.price.is_on)
		return price_step();
	if (time_ns >= state.next_ns) {
		u64 pause_ns = window_pause_ns(state.engine);
		int error = state.is_trial ? judge() : state.budget > 0 ? end_window() : go_on();
		state.drain_ns = monotonic_ns() + pause_ns;
		return state.stretch.is_on && !error ? finish_stretch() : error;
	}
	if (!state.stretch.is_on && time_ns >= stretch_due_ns())
		return begin_stretch();
	if (time_ns >= state.look_ns)
		look();
	if (time_ns >= state.drain_ns) {
		if (state.windows->is_full && state.budget > 0) { /* its step may be long */
			read_again();
			cut_again(state.level, EDGE_INNER);
		}
		u64 pause_ns = window_drain(state.engine);
		if (!state.stretch.is_on)
			stretches_drain();
		state.drain_ns = monotonic_ns() + pause_ns;
	}
	return 0;
}

bool schedule_cut_last(void)
{
	if (!state.is_read)
		read_now();
	state.is_read = true;
	/* Between dense windows the ledger may have been on, without phases. */
	return cut(state.level, state.price.is_on ? EDGE_RESTART : EDGE_OUTER);
}

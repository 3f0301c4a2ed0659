// SPDX-License-Identifier: GPL-2.0-only
/*
 * A recorder that got no CPU for more than 2 s goes on: what is lost is its present window. And
 * what is attached again only when there is room for it.
 */
#include "output.h"
#include "schedule_steps.h"
#include "stretches.h"

#define AGAIN_NS (2 * NS_PER_S) /* after attaching in vain */

bool cut_again(int level, enum edge edge)
{
	u64 merged_count = state.windows->merged_count;
	bool is_cut = cut(level, edge);

	if (!is_cut)
		state.windows->merged_count = merged_count;
	return is_cut;
}

bool may_rise(bool is_doubtful)
{
	return !is_doubtful || output_has_room(state.options->queue_bytes / 2) ||
	       monotonic_ns() >= state.again_ns;
}

int fall_back(int level)
{
	int error = turn(level) || follow_with_stretches() || stay();

	state.again_ns = monotonic_ns() + AGAIN_NS;
	state.next_ns += AGAIN_NS;
	return error ? -1 : 0;
}

int follow_with_stretches(void)
{
	if (state.stretch.begins || state.stretch.is_on)
		return 0;
	return stretches_follow(state.level == state.most &&
				(state.budget <= 0 || is_continuous(&state.pace.choice)));
}

/* What is going on beside windows is given up, and begins again when it is due. */
static int drop_stretches(void)
{
	int error = state.stretch.is_on ? stretch_detach() : 0;

	if (state.stretch.is_on)
		stretch_plan_next(0);
	state.stretch.is_on = false;
	if (state.price.is_on && engine_set_traps(state.engine, state.plan, state.target, true))
		error = -1;
	state.price.is_on = state.price.has_without = false;
	return stretches_follow(false) || error ? -1 : 0;
}

int schedule_lapse(void)
{
	state.windows->starved_count++;
	if (state.is_lapsed)
		return 0;
	state.lapsed_level = state.level;
	state.is_lapsed = true;
	state.again_ns = monotonic_ns() + AGAIN_NS;
	if (state.price.is_on) /* the engine is there already, without its traps */
		state.level = state.price.step.level;
	int error = turn(LEVEL_NONE); /* before traps are on again, which attaches none then */
	return drop_stretches() || error ? -1 : 0;
}

/* A step begins, at the level that was on. */
static void begin_step(void)
{
	u64 length_ns = state.is_trial	   ? TRIAL_NS
			: state.budget > 0 ? state.pace.step.length_ns
					   : state.options->window_ns;

	state.pace.step.level = state.level;
	state.settled = state.now; /* what was before belongs to no level */
	state.turn_ns = -1;
	state.looked_reader_ns = 0;
	state.reader_ns = meter_reader_ns();
	read_watched();
	state.next_ns = state.watched.time_ns + length_ns;
	state.look_ns = state.budget > 0 ? state.watched.time_ns + state.watch_ns : ~0ULL;
}

int schedule_resume(void)
{
	if (!may_rise(state.windows->is_full))
		return stay();
	if (turn(state.lapsed_level) || follow_with_stretches())
		return -1;
	read_now();
	if (!cut(LEVEL_NONE, has_ledger(state.lapsed_level) ? EDGE_RESTART : EDGE_OUTER))
		return fall_back(LEVEL_NONE);
	state.is_lapsed = false;
	begin_step();
	return 0;
}

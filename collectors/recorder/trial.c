// SPDX-License-Identifier: GPL-2.0-only
/* The trial of a budget, and the choice that it leads to. */
#include <string.h>

#include "failure.h"
#include "output.h"
#include "schedule_steps.h"
#include "stream.h"
#include "stretches.h"

/* What a window with a ledger costs who reads it, and time without, until that is known. */
#define READER_CUT_NS 5e6
#define READER_RATE 5e-4

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
	budget->neighbours_ns = (u64)choice->predicted.neighbours_ns;
	budget->samples_ns = (u64)choice->predicted.samples_ns;
	budget->recorder_ns = (u64)choice->predicted.recorder_ns;
	budget->level_base_ns = (u64)state.chosen.base_ns;
	budget->flow_ns = (u64)state.chosen.flow_ns;
	budget->record_ns = (u64)state.chosen.record_ns;
	strcpy(budget->dense, level_names[choice->dense]);
	strcpy(budget->light, choice->light == LEVEL_NONE ? "none" : level_names[choice->light]);
	output_commit();
	return 0;
}

/* What is on between dense windows, most likely. */
static int light_of(int most)
{
	return has_ledger(most) ? LEVEL_SIGNATURE : most - 1;
}

/*
 * Try what it costs to turn the dense programs off. Probes that fired while they were being
 * detached show how long that takes.
 */
static int try_turn(const struct span *trial, struct load *load)
{
	double rate =
		(trial->spent.probes_ns + trial->spent.scheduler_ns + trial->spent.neighbours_ns) /
		(double)(trial->length_ns ? trial->length_ns : 1);
	struct span tail;

	if (turn(light_of(state.most)))
		return -1;
	read_watched();
	meter_span(&state.now, &state.watched, state.level, &tail);
	load->turn_ns = 2 * state.turn_ns;
	load->tail_ns = rate > 0 ? (tail.spent.probes_ns + tail.spent.scheduler_ns +
				    tail.spent.neighbours_ns) /
					   rate
				 : 0;
	return 0;
}

/* A doubtful trial goes on for as long again. */
static int try_again(const struct span *trial)
{
	state.is_second = true;
	state.first = *trial;
	state.settled = state.now;
	read_watched();
	state.look_ns = state.watched.time_ns + state.watch_ns;
	state.next_ns = state.watched.time_ns + TRIAL_NS;
	return 0;
}

/* What the trial cost; false: it is doubtful, and goes on. */
static bool measure(void)
{
	struct load first;

	settle(&state.trial);
	meter_load(&state.trial, &state.load);
	state.load.read_ns = READER_CUT_NS;
	state.load.reading = READER_RATE / load_base(&state.load);
	if (!state.is_second &&
	    trial_is_doubtful(&state.load, state.budget, state.most, state.options->window_ns))
		return false;
	state.is_measured = true;
	state.settled = state.now;
	if (state.is_second) {
		meter_load(&state.first, &first);
		trials_join(&state.load, &first);
		spans_join(&state.trial, &state.first);
	}
	return true;
}

/* No room for the trial's window: it becomes part of one with less, and the choice waits. */
static int wait_for_room(void)
{
	if (state.level == state.most) {
		carry_cost();
		if (try_turn(&state.trial, &state.load) || stretches_follow(false))
			return -1;
	}
	return stay();
}

/* Choose by what the trial cost; its window is sent. */
static int choose(void)
{
	struct choice choice;
	struct load *load = &state.load;
	struct span since;

	settle(&since); /* while there was no room */
	state.settled = state.now;
	state.is_trial = false;
	load->read_ns = state.options->reader ? READER_CUT_NS : 0;
	load->reading = state.options->reader ? READER_RATE / load_base(load) : 0;
	bool is_simple = budget_choose(load, state.budget, state.most, state.options->window_ns,
				       false, &choice) &&
			 is_continuous(&choice) && choice.dense == state.most;
	if (!is_simple && state.level == state.most && try_turn(&state.trial, load))
		return -1;
	bool fits = pace_begin(&state.pace, load, &state.trial);
	if (!fits && !state.options->or_everything) {
		budget_refuse(load, state.budget);
		return -1;
	}
	account_settle(&state.pace.account, &since);
	struct step step = {state.most, state.options->window_ns, NEVER_NS};
	if (fits) {
		step = pace_first(&state.pace);
		meter_count_reader(state.options->reader);
	} else {
		state.budget = 0;
		state.pace.choice = budget_everything(load, state.most, state.options->window_ns);
	}
	return put_budget() ? -1 : follow(step, true);
}

/* The trial is over. */
int judge(void)
{
	read_now();
	if (!state.is_measured && !measure())
		return try_again(&state.trial);
	bool is_late = state.level != state.most;
	bool is_cut = is_late ? cut_again(state.level, EDGE_OUTER) : cut(state.level, EDGE_OUTER);
	if (!is_late || state.cut_ns > state.load.cut_ns)
		state.load.cut_ns = state.cut_ns;
	if (!is_cut || !output_has_room(sizeof(struct stream_budget)))
		return wait_for_room();
	return choose();
}

// SPDX-License-Identifier: GPL-2.0-only
/* The schedule's readings of the counters. */
#include "schedule_steps.h"
#include "stretches.h"

static void read_counters(bool goes_on)
{
	meter_read(&state.now, goes_on);
	double more_ns = stretches_spent_ns();
	state.sent_more_ns += more_ns;
	state.settled_more_ns += more_ns;
	state.watched_more_ns += more_ns;
	state.stretch.spent_ns += more_ns;
}

void read_now(void)
{
	read_counters(false);
}

/* A thread that computes alone on its CPU is told by the clock, not at its next switch. */
void read_again(void)
{
	read_counters(has_ledger(state.level));
	double usual_ns =
		state.pace.load.cpus * (double)(state.now.time_ns - state.settled.time_ns);
	if ((double)(state.now.target_cpu_ns - state.settled.target_cpu_ns) < usual_ns / 2)
		state.now.target_cpu_ns =
			target_clock_read(&session->meter.target_clock, &session->engine, false);
}

void read_watched(void)
{
	meter_read(&state.watched, has_ledger(state.level));
	state.watched_more_ns = 0;
}

void settle(struct span *span)
{
	meter_span(&state.settled, &state.now, state.level, span);
	span->spent.probes_ns += state.settled_more_ns;
	state.settled_more_ns = 0;
}

void carry_cost(void)
{
	struct overhead *carried = &state.carried;
	struct span span;

	meter_span(&state.sent, &state.now, state.level, &span);
	carried->probes_ns += span.spent.probes_ns + state.sent_more_ns;
	carried->scheduler_ns += span.spent.scheduler_ns;
	carried->neighbours_ns += span.spent.neighbours_ns;
	carried->samples_ns += span.spent.samples_ns;
	state.sent = state.now;
	state.sent_more_ns = 0;
}

void tell_carried(struct overhead *spent)
{
	spent->probes_ns += state.carried.probes_ns;
	spent->scheduler_ns += state.carried.scheduler_ns;
	spent->neighbours_ns += state.carried.neighbours_ns;
	spent->samples_ns += state.carried.samples_ns;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "price_stretches.h"

#include "output.h"
#include "schedule_steps.h"
#include "stream.h"
#include "watchdog.h"

#define price (state.price)
#define estimated (session->meter.hit_price)

#define ARM_NS (60 * NS_PER_MS)
#define SETTLE_NS (5 * NS_PER_MS)

enum { THIN_MOST = 4 };

bool price_is_wanted(void)
{
	const struct engine *engine = &session->engine;

	return session->options.measures_cost && engine->settings.level == LEVEL_RECORD &&
	       uses_sockets(engine) && !session->plan.role && price.thin_count < THIN_MOST &&
	       estimated.pairs_count < PAIRS_MOST;
}

static int set_traps(bool on)
{
	watchdog_beat();
	return engine_set_traps(&session->engine, &session->plan, &session->target, on);
}

static void add(const struct price_arm *without, const struct price_arm *with)
{
	if (hit_price_add(&estimated, without, with)) {
		price.thin_count = 0;
		price.is_untold = estimated.pairs_count >= PAIRS_LEAST;
	} else {
		price.thin_count++;
	}
}

void price_put(void)
{
	struct stream_hit_price *frame =
		price.is_untold ? output_put_alone(STREAM_HIT_PRICE, sizeof(*frame)) : NULL;

	if (!frame)
		return;
	*frame = (struct stream_hit_price){
		.pairs_count = estimated.pairs_count,
		.hit_ns = estimated.hit.value > 0 ? (u64)estimated.hit.value : 0,
		.low_ns = (s64)estimated.hit.low,
		.high_ns = (s64)estimated.hit.high,
		.factor_ppm = estimated.factor > 0 ? (u64)(estimated.factor * 1e6) : 0,
		.is_used = estimated.is_measured,
	};
	output_commit();
	price.is_untold = false;
}

int price_begin(struct step step)
{
	window_turning(state.engine);
	int error =
		set_traps(false) || engine_go(state.engine, state.plan, state.target, step.level);
	window_turned(state.engine);
	statistics_turn(true);
	price.is_on = price.is_settling = true;
	price.step = step;
	state.next_ns = monotonic_ns() + SETTLE_NS;
	state.look_ns = ~0ULL;
	return error ? -1 : 0;
}

/* The light window before it pays for it: it is no part of what the dense one costs. */
static void pay(void)
{
	struct span span;

	settle(&span);
	account_settle(&state.pace.account, &span);
	state.settled = state.now;
}

int price_step(void)
{
	if (price.is_settling) {
		meter_read(&price.from, false);
		price.is_settling = false;
		state.next_ns = price.from.time_ns + ARM_NS;
		return 0;
	}
	read_now();
	meter_arm(&price.from, &state.now, &price.without);
	pay();
	window_turning(state.engine);
	int error = set_traps(true);
	window_turned(state.engine);
	price.is_on = false;
	if (error || enter(price.step))
		return -1;
	price.has_without = state.level == price.step.level;
	state.turn_ns = -1; /* it is not what a dense window takes */
	return 0;
}

bool price_is_compared(void)
{
	return price.has_without;
}

void price_window_ended(void)
{
	struct price_arm with;

	if (price.has_without) {
		meter_arm(&state.watched, &state.now, &with);
		add(&price.without, &with);
		price.has_without = false;
	}
	price_put();
}

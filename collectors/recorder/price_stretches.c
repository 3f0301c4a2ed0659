// SPDX-License-Identifier: GPL-2.0-only
#include "price_stretches.h"

#include <poll.h>

#include "beginning.h"
#include "output.h"
#include "schedule_steps.h"
#include "stream.h"
#include "watchdog.h"

#define price (state.price)
#define estimated (session->meter.hit_price)

#define ARM_NS (60 * NS_PER_MS)
#define SETTLE_NS (5 * NS_PER_MS)
#define PATIENCE_NS (6 * NS_PER_S) /* for all pairs before a recording */
#define SLOW_NS (400 * NS_PER_MS)  /* to attach or detach: a host that is too busy for this */

enum { PAIRS = 24, THIN_MOST = 4, ARM_LENGTHS = 4 /* of ARM_NS, until enough has happened */ };

bool price_is_wanted(void)
{
	const struct engine *engine = &session->engine;

	return session->options.measures_hits && engine->settings.level == LEVEL_RECORD &&
	       uses_sockets(engine) && !session->plan.role && price.thin_count < THIN_MOST &&
	       estimated.pairs_count < PRICE_PAIRS_MOST;
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
		price.is_untold = estimated.pairs_count >= PRICE_PAIRS_LEAST;
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
		.hit_ns = estimated.hit_ns > 0 ? (u64)estimated.hit_ns : 0,
		.low_ns = (s64)estimated.low_ns,
		.high_ns = (s64)estimated.high_ns,
		.factor_ppm = estimated.factor > 0 ? (u64)(estimated.factor * 1e6) : 0,
		.is_used = estimated.is_measured,
	};
	output_commit();
	price.is_untold = false;
}

/* ---- before a recording without a budget ---- */

static bool is_over(void)
{
	struct pollfd process = {.fd = session->target.pidfd, .events = POLLIN};

	return poll(&process, 1, 0) == 1 || beginning_is_interrupted();
}

static void pause_for(u64 length_ns)
{
	struct timespec pause = {.tv_nsec = (long)length_ns};

	nanosleep(&pause, NULL);
	watchdog_beat();
}

/* What ended or was seen so far is of no recording. */
static void discard(void)
{
	handshakes_drain(&session->engine, true);
	accounts_recycle_unsent(&session->engine);
}

static int take_arm(bool with_traps, struct price_arm *arm)
{
	static struct reading before, after;
	u64 asked_ns = monotonic_ns();

	if (set_traps(with_traps))
		return -1;
	if (monotonic_ns() - asked_ns > SLOW_NS)
		price.thin_count = THIN_MOST;
	pause_for(SETTLE_NS);
	meter_read(&before);
	for (int i = 0; i < ARM_LENGTHS; i++) {
		pause_for(ARM_NS);
		meter_read(&after);
		if ((double)(after.sends - before.sends) >= PRICE_SENDS_LEAST)
			break;
	}
	meter_arm(&before, &after, arm);
	discard();
	return 0;
}

/* The accounts then know no phase, as where a recording begins. */
static int begin_anew(void)
{
	struct engine *engine = &session->engine;

	if (set_traps(true) ||
	    engine_go(engine, &session->plan, &session->target, LEVEL_CONNECTION))
		return -1;
	discard();
	counters_begin(engine);
	return engine_go(engine, &session->plan, &session->target, (int)engine->settings.level);
}

int price_measure(void)
{
	u64 end_ns = monotonic_ns() + PATIENCE_NS;
	struct price_arm arms[2];

	if (session->options.budget > 0 || sessions_count() > 1 || !price_is_wanted())
		return 0;
	meter_prepare(&session->engine, &session->plan, &session->target);
	/* Neither comes always first, and nothing is attached or detached between two pairs. */
	for (u32 pair = 0; pair < PAIRS && price.thin_count < THIN_MOST; pair++) {
		bool first = pair % 2 == 0;
		if (is_over() || monotonic_ns() > end_ns)
			break;
		if (take_arm(first, &arms[first]))
			return -1;
		bool is_idle = arms[first].sends < PRICE_SENDS_LEAST && !estimated.pairs_count;
		if (is_idle || price.thin_count == THIN_MOST)
			break; /* nobody is waited for */
		if (take_arm(!first, &arms[!first]))
			return -1;
		if (price.thin_count < THIN_MOST)
			add(&arms[false], &arms[true]);
	}
	return begin_anew();
}

/* ---- between dense windows ---- */

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
		meter_read(&price.from);
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

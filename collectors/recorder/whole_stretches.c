// SPDX-License-Identifier: GPL-2.0-only
#include "whole_stretches.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "beginning.h"
#include "control.h"
#include "output.h"
#include "senders.h"
#include "serve.h"
#include "session.h"
#include "stream.h"
#include "watchdog.h"

#define price (session->meter.whole_price)

#define LOOK_NS (120 * NS_PER_MS) /* in which the programs are timed */
#define LOOK_SENDS_LEAST 60.0	  /* in it, or nothing is measured */
#define ARM_NS (80 * NS_PER_MS)
#define ARM_MOST_NS (240 * NS_PER_MS)
#define ARM_SENDS 150.0 /* a stretch is longer where they take longer */
#define SETTLE_NS (5 * NS_PER_MS)
#define PATIENCE_NS (10 * NS_PER_S) /* for all pairs */
#define SLOW_NS (400 * NS_PER_MS)   /* to attach or detach: a host that is too busy for this */

#define CLIENT_PART 0.01  /* of the target's sends: fewer are not looked at */
#define KNOWN_PART 0.9	  /* of the sends of others must be theirs to be surely all */
#define ANSWERED_PART 0.3 /* of the target's sends: else its clients are elsewhere */

enum { PAIRS = 22, THIN_MOST = 4 /* pairs in a row in which too little happened */ };

/* Of a stretch: its length, and how often those sent that may be clients. */
struct counted {
	double time_ns, sends[SENDERS_MOST];
};

static struct {
	struct sender clients[SENDERS_MOST];
	u32 count;
	struct whole_rates rates;
	double looked, known; /* sends of others at first, and of them those of clients */
	bool is_over;	      /* it is too slow here */
	bool is_told;
} host;

static bool is_wanted(void)
{
	const struct options *options = &session->options;

	return options->measures_cost && options->budget <= 0 && sessions_count() == 1 &&
	       has_ledger((int)session->engine.settings.level) && !session->plan.role;
}

/* Whether it is to end, or whoever asked for it, or reads it, is gone. */
static bool is_interrupted(void)
{
	struct pollfd lines[] = {
		{.fd = session->target.pidfd, .events = POLLIN},
		{.fd = control_line()}, /* POLLHUP */
		{.fd = STDOUT_FILENO},	/* POLLERR: of a stream that goes there */
	};

	poll(lines, COUNT(lines), 0);
	return lines[0].revents || lines[1].revents & POLLHUP || lines[2].revents & POLLERR ||
	       serve_is_over() || watchdog_missed() || beginning_is_interrupted();
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

static int turn_to(int level)
{
	u64 asked_ns = monotonic_ns();

	watchdog_beat();
	if (engine_go(&session->engine, &session->plan, &session->target, level))
		return -1;
	if (monotonic_ns() - asked_ns > SLOW_NS)
		host.is_over = true;
	return 0;
}

static void take(u64 length_ns, int level, struct whole_arm *arm, struct counted *counted)
{
	static struct reading before, after;
	static struct sender clients[SENDERS_MOST];
	struct span span;
	int pid = session->target.pid;

	pause_for(SETTLE_NS);
	meter_read(&before, false);
	senders_read(host.clients, host.count);
	memcpy(clients, host.clients, sizeof(clients));
	u64 sends = senders_count(pid);
	pause_for(length_ns);
	meter_read(&after, false);
	senders_read(host.clients, host.count);
	meter_span(&before, &after, level, &span);
	*arm = (struct whole_arm){
		.sends = (double)(senders_count(pid) - sends),
		.cpu_ns = (double)span.target_cpu_ns,
		.events = (double)(after.events - before.events),
		.said_ns = span.spent.probes_ns + span.spent.scheduler_ns,
		.neighbours_said_ns = span.spent.neighbours_ns,
	};
	counted->time_ns = (double)span.length_ns;
	for (u32 i = 0; i < host.count; i++) {
		const struct sender *now = &host.clients[i];
		if (now->cpu_ns > clients[i].cpu_ns) /* 0 after it has ended */
			arm->clients_ns += (double)(now->cpu_ns - clients[i].cpu_ns);
		counted->sends[i] = (double)(now->sends - clients[i].sends);
	}
	discard();
}

static void find_clients(double sends)
{
	int pid = session->target.pid;
	u64 least = (u64)(CLIENT_PART * sends), known = 0;

	host.count = senders_find(pid, least ? least : 1, host.clients);
	for (u32 i = 0; i < host.count; i++)
		known += host.clients[i].sends;
	host.looked = (double)senders_count_others(pid);
	host.known = (double)known;
}

static enum are_clients clients(double sends)
{
	bool are_known = host.count < SENDERS_MOST && host.known >= KNOWN_PART * host.looked;

	if (host.looked < ANSWERED_PART * sends)
		return CLIENTS_NONE;
	enum are_clients found = are_clients(&host.rates, host.count);
	return found == CLIENTS_SURELY && !are_known ? CLIENTS_PERHAPS : found;
}

/* How the stretches of a pair differ; one that sent in neither differs by nothing. */
static void compare(const struct whole_arm arms[2], const struct counted counted[2])
{
	struct whole_rates *rates = &host.rates;
	double part = arms[true].sends / arms[false].sends;
	u32 pair = rates->pairs_count++;

	rates->slower[pair] = counted[true].time_ns / counted[false].time_ns / part;
	double all[2] = {0};
	for (u32 i = 0; i < host.count; i++) {
		double on = counted[true].sends[i], off = counted[false].sends[i];
		rates->sends[i][pair] = off > 0 ? on / off / part : on > 0 ? 1e9 : 1;
		rates->silent[i] += on + off == 0;
		all[true] += on;
		all[false] += off;
	}
	rates->all[pair] = all[false] > 0 ? all[true] / all[false] / part : 1;
}

/* Of a stretch, by how many sends the first look had. */
static u64 arm_length(double sends)
{
	u64 length_ns = (u64)(ARM_SENDS / sends * (double)LOOK_NS);

	return length_ns < ARM_NS ? ARM_NS : length_ns > ARM_MOST_NS ? ARM_MOST_NS : length_ns;
}

/* Neither comes always first, and nothing is attached or detached between two pairs. */
static int take_pair(bool is_first, u64 length_ns, struct whole_arm arms[2],
		     struct counted counted[2])
{
	int levels[2] = {LEVEL_SAMPLE, (int)session->engine.settings.level};

	for (int i = 0; i < 2; i++) {
		bool is_on = i ? !is_first : is_first;
		if (turn_to(levels[is_on]))
			return -1;
		take(length_ns, levels[is_on], &arms[is_on], &counted[is_on]);
	}
	return 0;
}

/* The accounts then know no phase, as where a recording begins. */
static int begin_anew(void)
{
	statistics_turn(true);
	if (turn_to(LEVEL_CONNECTION))
		return -1;
	discard();
	counters_begin(&session->engine);
	return turn_to((int)session->engine.settings.level);
}

static int take_pairs(void)
{
	u64 end_ns = monotonic_ns() + PATIENCE_NS;
	struct whole_arm arms[2];
	struct counted counted[2];
	u32 thin_count = 0;

	take(LOOK_NS, (int)session->engine.settings.level, &arms[true], &counted[true]);
	if (arms[true].sends < LOOK_SENDS_LEAST)
		return 0; /* nobody is waited for */
	double looked = arms[true].sends;
	u64 length_ns = arm_length(looked);
	find_clients(looked);
	price.in_situ = meter_in_situ();
	statistics_turn(false); /* as in nearly all windows */
	for (u32 pair = 0; pair < PAIRS && !host.is_over && thin_count < THIN_MOST; pair++) {
		if (is_interrupted() || monotonic_ns() > end_ns)
			break;
		if (take_pair(pair % 2 == 0, length_ns, arms, counted))
			return -1;
		if (!whole_price_add(&price, &arms[false], &arms[true])) {
			thin_count++;
			continue;
		}
		thin_count = 0;
		compare(arms, counted);
	}
	price.clients = clients(looked);
	whole_price_estimate(&price);
	if (!price.is_server_used)
		price.in_situ = 0;
	if (watchdog_missed()) /* the programs returned at once for a part of it */
		price = (struct whole_price){0};
	return 0;
}

int whole_measure(void)
{
	if (!is_wanted() || !senders_begin())
		return 0;
	meter_prepare(&session->engine, &session->plan, &session->target);
	int error = take_pairs();
	senders_end();
	return error ? error : begin_anew();
}

void whole_put(void)
{
	struct stream_whole_price *frame =
		price.pairs_count >= PAIRS_LEAST && !host.is_told
			? output_put_alone(STREAM_WHOLE_PRICE, sizeof(*frame))
			: NULL;

	if (!frame)
		return;
	*frame = (struct stream_whole_price){
		.pairs_count = price.pairs_count,
		.send_ns = (u64)price.send_ns,
		.server_ns = (s64)price.server.value,
		.server_low_ns = (s64)price.server.low,
		.server_high_ns = (s64)price.server.high,
		.host_ns = (s64)price.host.value,
		.host_low_ns = (s64)price.host.low,
		.host_high_ns = (s64)price.host.high,
		.server_said_ns = (u64)price.server_said_ns,
		.host_said_ns = (u64)price.host_said_ns,
		.server_told_ns = (s64)price.server_told_ns,
		.host_told_ns = (s64)price.host_told_ns,
		.ratio_ppm = price.ratio > 0 ? (u64)(price.ratio * 1e6) : 0,
		.event_ns = (s64)price.event_ns,
		.is_server_used = price.is_server_used,
		.has_clients = price.clients == CLIENTS_SURELY,
		.is_host_used = price.is_host_used,
	};
	output_commit();
	host.is_told = true;
}

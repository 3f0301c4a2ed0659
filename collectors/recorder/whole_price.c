// SPDX-License-Identifier: GPL-2.0-only
#include "whole_price.h"

#define SLOWER_LEAST 1.03 /* else who waits for the target cannot be told */
#define TIED_MOST 0.3	  /* of by how much it is slower: one that competes has 0.5 and more */
#define SAID_ERROR 0.5	  /* of what prices say: docs/measurements/overhead.md */
#define CLIENTS_PART 0.4  /* of what the target pays: 0.23 to 0.49 of it there */
#define CLIENTS_PART_ERROR 0.1
#define RATIO_LEAST 1e-6 /* what the stream can tell */
#define NORMAL_95 1.96	 /* half a 95 % interval, in standard deviations */

enum are_clients are_clients(const struct whole_rates *rates, u32 count)
{
	u32 pairs = rates->pairs_count;
	enum are_clients found = count ? CLIENTS_SURELY : CLIENTS_PERHAPS;

	if (pairs < PAIRS_LEAST)
		return CLIENTS_NONE;
	double slower = median_of(rates->slower, pairs).value;
	double most = 1 + TIED_MOST * (slower - 1);
	if (slower < SLOWER_LEAST)
		return CLIENTS_PERHAPS;
	if (count && median_of(rates->all, pairs).low > most)
		return CLIENTS_NONE;
	for (u32 i = 0; i < count; i++)
		if (pairs - rates->silent[i] < PAIRS_USED ||
		    median_of(rates->sends[i], pairs).high > most)
			found = CLIENTS_PERHAPS;
	return found;
}

bool whole_price_add(struct whole_price *price, const struct whole_arm *without,
		     const struct whole_arm *with)
{
	u32 pair = price->pairs_count;

	if (without->sends < WHOLE_SENDS_LEAST || with->sends < WHOLE_SENDS_LEAST ||
	    pair == PAIRS_MOST)
		return false;
	double part = with->sends / without->sends;
	double said_ns = with->said_ns - without->said_ns * part;
	double others_ns = with->neighbours_said_ns - without->neighbours_said_ns * part;
	double events = with->events - without->events * part;
	if (said_ns <= 0 || events <= 0)
		return false;
	double server_ns = with->cpu_ns - without->cpu_ns * part;
	double clients_ns = with->clients_ns - without->clients_ns * part;
	price->server_ns[pair] = server_ns / with->sends;
	price->host_ns[pair] = (server_ns + clients_ns) / with->sends;
	price->said_ns[pair] = said_ns / with->sends;
	price->others_ns[pair] = others_ns / with->sends;
	price->events[pair] = events / with->sends;
	price->without_ns[pair] = without->cpu_ns / without->sends;
	price->pairs_count++;
	return true;
}

struct estimate {
	double value, variance;
};

static struct estimate known_to(double value, double error)
{
	return (struct estimate){value, error * error};
}

static struct estimate measured(const struct median *median)
{
	return known_to(median->value, (median->high - median->low) / (2 * NORMAL_95));
}

/* The mean of two, each by the inverse of its variance. */
static struct estimate both(struct estimate one, struct estimate other)
{
	double sum = one.variance + other.variance;

	if (sum <= 0)
		return one;
	return (struct estimate){
		.value = (one.value * other.variance + other.value * one.variance) / sum,
		.variance = one.variance * other.variance / sum,
	};
}

/* Of the target and its clients, by what the target pays. */
static struct estimate with_clients(struct estimate server)
{
	double all = 1 + CLIENTS_PART, error = CLIENTS_PART_ERROR * server.value;

	return (struct estimate){
		.value = all * server.value,
		.variance = all * all * server.variance + error * error,
	};
}

/* Prices are of all that is paid: with clients on this host the target pays a part of it. */
static void tell(struct whole_price *price)
{
	bool are_here = price->clients != CLIENTS_NONE;
	double said_ns = price->server_said_ns;

	if (are_here && price->host_said_ns / (1 + CLIENTS_PART) < said_ns)
		said_ns = price->host_said_ns / (1 + CLIENTS_PART);
	struct estimate said = known_to(said_ns, SAID_ERROR * said_ns);
	struct estimate server = both(measured(&price->server), said);
	struct estimate host = with_clients(server);

	if (price->clients == CLIENTS_SURELY)
		host = both(measured(&price->host), host);
	double host_ns = are_here ? host.value : price->host_said_ns;

	price->server_told_ns = server.value;
	price->host_told_ns = host_ns > server.value ? host_ns : server.value;
}

void whole_price_estimate(struct whole_price *price)
{
	u32 count = price->pairs_count;

	if (count < PAIRS_LEAST)
		return;
	double others_ns = median_of(price->others_ns, count).value;
	double events = median_of(price->events, count).value;
	price->server = median_of(price->server_ns, count);
	price->host = median_of(price->host_ns, count);
	price->send_ns = median_of(price->without_ns, count).value;
	price->server_said_ns = median_of(price->said_ns, count).value;
	price->host_said_ns = price->server_said_ns + (others_ns > 0 ? others_ns : 0);
	tell(price);
	price->ratio = price->server_told_ns / price->server_said_ns;
	price->event_ns = (price->host_told_ns - price->server_told_ns) / events;
	price->is_server_used = count >= PAIRS_USED && price->ratio >= RATIO_LEAST;
	price->is_host_used = price->is_server_used && price->clients != CLIENTS_NONE;
}

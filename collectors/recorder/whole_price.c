// SPDX-License-Identifier: GPL-2.0-only
#include "whole_price.h"

#define SLOWER_LEAST 1.03 /* else who waits for the target cannot be told */
#define TIED_MOST 0.3	  /* of by how much it is slower: one that competes has 0.5 and more */

bool are_clients(const struct whole_rates *rates, u32 count)
{
	u32 pairs = rates->pairs_count;

	if (pairs < PAIRS_LEAST || !count)
		return false;
	double slower = median_of(rates->slower, pairs).value;
	if (slower < SLOWER_LEAST)
		return false;
	for (u32 i = 0; i < count; i++)
		if (median_of(rates->sends[i], pairs).high > 1 + TIED_MOST * (slower - 1))
			return false;
	return true;
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
	price->ratios[pair] = server_ns / said_ns;
	price->elsewhere_ns[pair] = (clients_ns - others_ns) / events;
	price->without_ns[pair] = without->cpu_ns / without->sends;
	price->pairs_count++;
	return true;
}

bool whole_price_is_hopeless(const struct whole_price *price)
{
	if (price->pairs_count != PAIRS_LEAST)
		return false;
	struct median server = median_of(price->server_ns, PAIRS_LEAST);
	return (server.high - server.low) / 2 > server.value;
}

void whole_price_estimate(struct whole_price *price)
{
	u32 count = price->pairs_count;

	if (count < PAIRS_LEAST)
		return;
	price->server = median_of(price->server_ns, count);
	price->host = median_of(price->host_ns, count);
	price->send_ns = median_of(price->without_ns, count).value;
	price->ratio = median_of(price->ratios, count).value;
	price->event_ns = median_of(price->elsewhere_ns, count).value;
	price->is_server_used = price->ratio > 0 && median_is_certain(&price->server, count);
	price->is_host_used = price->is_server_used && price->has_clients &&
			      median_is_certain(&price->host, count);
}

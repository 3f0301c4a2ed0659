// SPDX-License-Identifier: GPL-2.0-only
#include "hit_price.h"

static void estimate(struct hit_price *price)
{
	u32 count = price->pairs_count;

	price->factor = median_of(price->factors, count).value;
	price->hit = median_of(price->hits_ns, count);
	price->is_measured = price->factor > 0 && median_is_certain(&price->hit, count);
}

bool hit_price_add(struct hit_price *price, const struct price_arm *without,
		   const struct price_arm *with)
{
	if (without->sends < PRICE_SENDS_LEAST || with->sends < PRICE_SENDS_LEAST ||
	    price->pairs_count == PAIRS_MOST)
		return false;
	double part = with->sends / without->sends;
	double hits = with->hits - without->hits * part;
	double loop_ns = with->loop_ns - without->loop_ns * part;
	if (hits < PRICE_SENDS_LEAST || loop_ns <= 0)
		return false;
	double extra_ns = with->cpu_ns - without->cpu_ns * part;
	double bodies_ns = with->bodies_ns - without->bodies_ns * part;
	price->hits_ns[price->pairs_count] = extra_ns / hits;
	price->factors[price->pairs_count++] = (extra_ns - bodies_ns) / loop_ns;
	if (price->pairs_count >= PAIRS_LEAST)
		estimate(price);
	return true;
}

double usual_in_situ(double cpus)
{
	double warmth = (cpus - COLD_CPUS) / (WARM_CPUS - COLD_CPUS);

	warmth = warmth < 0 ? 0 : warmth > 1 ? 1 : warmth;
	return IN_SITU_COLD + warmth * (IN_SITU - IN_SITU_COLD);
}

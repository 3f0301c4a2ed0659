// SPDX-License-Identifier: GPL-2.0-only
#include "hit_price.h"

#include <string.h>

#define LEVEL 0.05   /* an interval misses the median that often */
#define CERTAIN 0.25 /* of the price: its interval's half width, at most */

static void sort(const double *values, u32 count, double *sorted)
{
	memcpy(sorted, values, count * sizeof(*values));
	for (u32 i = 1; i < count; i++) {
		double value = sorted[i];
		u32 place = i;
		for (; place && sorted[place - 1] > value; place--)
			sorted[place] = sorted[place - 1];
		sorted[place] = value;
	}
}

static double middle(const double *sorted, u32 count)
{
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/*
 * The rank from each end that bounds the median of so many sorted values, and the weight of the
 * next inner one: as collectors/capture/order_statistics.py has it, which says why.
 */
static u32 ranks(u32 count, double *weight)
{
	double all_ways = (double)(1ULL << count), ways = count, outside = 2 / all_ways;
	u32 rank = 1;

	for (; outside + 2 * ways / all_ways <= LEVEL; rank++) {
		outside += 2 * ways / all_ways;
		ways *= (double)(count - rank) / (double)(rank + 1);
	}
	double part = (LEVEL - outside) / (2 * ways / all_ways);
	*weight = (double)(count - rank) * part /
		  ((double)rank + ((double)count - 2 * (double)rank) * part);
	return rank;
}

static void estimate(struct hit_price *price)
{
	double sorted[PRICE_PAIRS_MOST], weight;
	u32 count = price->pairs_count, rank = ranks(count, &weight);

	sort(price->factors, count, sorted);
	price->factor = middle(sorted, count);
	sort(price->hits_ns, count, sorted);
	price->hit_ns = middle(sorted, count);
	price->low_ns = (1 - weight) * sorted[rank - 1] + weight * sorted[rank];
	price->high_ns = (1 - weight) * sorted[count - rank] + weight * sorted[count - rank - 1];
	price->is_measured = count >= PRICE_PAIRS_USED && price->factor > 0 && price->low_ns > 0 &&
			     (price->high_ns - price->low_ns) / 2 <= CERTAIN * price->hit_ns;
}

bool hit_price_add(struct hit_price *price, const struct price_arm *without,
		   const struct price_arm *with)
{
	if (without->sends < PRICE_SENDS_LEAST || with->sends < PRICE_SENDS_LEAST ||
	    price->pairs_count == PRICE_PAIRS_MOST)
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
	if (price->pairs_count >= PRICE_PAIRS_LEAST)
		estimate(price);
	return true;
}

double usual_in_situ(double cpus)
{
	double warmth = (cpus - COLD_CPUS) / (WARM_CPUS - COLD_CPUS);

	warmth = warmth < 0 ? 0 : warmth > 1 ? 1 : warmth;
	return IN_SITU_COLD + warmth * (IN_SITU - IN_SITU_COLD);
}

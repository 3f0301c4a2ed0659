// SPDX-License-Identifier: GPL-2.0-only
#include "median.h"

#include <string.h>

#define LEVEL 0.05   /* an interval misses the median that often */
#define CERTAIN 0.25 /* of the value: its interval's half width, at most */

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

struct median median_of(const double *values, u32 count)
{
	double sorted[PAIRS_MOST], weight;
	u32 rank = ranks(count, &weight);

	sort(values, count, sorted);
	return (struct median){
		.value = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
		.low = (1 - weight) * sorted[rank - 1] + weight * sorted[rank],
		.high = (1 - weight) * sorted[count - rank] + weight * sorted[count - rank - 1],
	};
}

bool median_is_certain(const struct median *median, u32 count)
{
	return count >= PAIRS_USED && median->low > 0 &&
	       (median->high - median->low) / 2 <= CERTAIN * median->value;
}

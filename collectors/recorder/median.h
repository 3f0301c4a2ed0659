/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The median of pairs of stretches, with a 95 % interval by order statistics: nothing is assumed of
 * how they scatter, and drift that is slower than a pair has no part in them.
 */
#ifndef TLSTAX_MEDIAN_H
#define TLSTAX_MEDIAN_H

#include "types.h"

/* An estimate needs 8 pairs. Of fewer than 16, those with an interval narrow enough to be used
 * would too often be those that are wrong. */
enum { PAIRS_LEAST = 8, PAIRS_USED = 16, PAIRS_MOST = 32 };

struct median {
	double value, low, high;
};

/* Of so many values, from the least number of pairs to the most; in any order. */
struct median median_of(const double *values, u32 count);

/* Whether it may be used: it is of enough pairs, above 0, and known to a quarter. */
bool median_is_certain(const struct median *median, u32 count);

#endif

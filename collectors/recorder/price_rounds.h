/* SPDX-License-Identifier: GPL-2.0-only */
/* Rounds in which functions with and without a probe are called, and their CPU time. */
#ifndef TLSTAX_PRICE_ROUNDS_H
#define TLSTAX_PRICE_ROUNDS_H

#include <stdio.h>

#include "types.h"

enum price_kind { BARE, ENTRY, RETURN, STEPPED, PRICE_KINDS };
enum { PRICE_SLOT = 64 }; /* bytes between the functions in their file */

/* The functions, one for each kind at its number of slots: their file, below 0: errno says why. */
int price_code_map(void);

/* Rounds on `count` of these CPUs, spread over all of them. False: threads cannot be started. */
bool price_rounds_run(const u32 *cpus, u32 all, u32 count, u64 until_ns);

/* Calls of probed functions in them. */
u64 price_rounds_calls(void);

/* The result as lines (prices.h). False, and nothing: too few rounds were on all CPUs at once. */
bool price_rounds_put(FILE *to, bool has_multi);

#endif

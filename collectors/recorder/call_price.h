/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What it costs to call a program at an event, measured on this host.
 *
 * The kernel counts a program's run time between its first and last instruction. What it needs to
 * get there is not in it, and reading the clock is. Both depend on the processor and on how the
 * kernel guards indirect branches. So the recorder asks an empty socket of its own some thousand
 * times, without a program at the tracepoint of a receive, with one that returns at once, and with
 * that while the kernel times it. Sends were tried: their memory makes two costs of them, a fifth
 * apart. It takes 1 ms.
 */
#ifndef TLSTAX_CALL_PRICE_H
#define TLSTAX_CALL_PRICE_H

#include "types.h"

struct call_price {
	double call_ns;	 /* of a call, beyond what the kernel counts as its run time */
	double idle_ns;	 /* of all of an event for which a program returns at once */
	double timed_ns; /* more, of each call, while the kernel times programs */
	bool is_measured;
};

/* Where it cannot be measured (no such tracepoint): those of the test machine. */
#define CALL_NS 100.0
#define IDLE_NS 170.0

/* Measure it, once for a recorder; nothing is attached afterwards. */
void call_price_measure(void);

const struct call_price *call_price(void);

#endif

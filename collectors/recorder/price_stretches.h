/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Short stretches at level record with the dense probes and without them, for hit_price.h.
 *
 * The programs at events of the scheduler and of sockets are on in both. Without probes they cannot
 * tell phases, so nothing of such a stretch is in a window with a ledger:
 *
 * - without a budget all pairs come before the recording begins, which is some seconds later then.
 *   Who is idle at that time is not waited for;
 * - with a budget that leaves time between dense windows, a stretch without probes comes before a
 *   dense window, which is the other half of the pair. The account pays for it;
 * - where a budget records all the time there are none: the default stands.
 */
#ifndef TLSTAX_PRICE_STRETCHES_H
#define TLSTAX_PRICE_STRETCHES_H

#include "metering.h"
#include "pace.h"

struct price_stretches {
	bool is_on;	  /* one without probes, before a dense window */
	bool is_settling; /* its first moments are not counted */
	bool has_without; /* the dense window that is under way is the other half of a pair */
	bool is_untold;	  /* the last estimate had no room in the stream */
	u32 thin_count;	  /* pairs in a row in which too little happened; the most: no more */
	struct step step; /* the dense window that follows */
	struct reading from;
	struct price_arm without;
};

/* Whether the next dense window should be half of a pair. */
bool price_is_wanted(void);

/* Begin the stretch before a dense window, and go on when the schedule's time has come. */
int price_begin(struct step step);
int price_step(void);

/* A window ended: was it the other half? Before it is read: will it be? */
void price_window_ended(void);
bool price_is_compared(void);

/* Tell what was estimated, if there is room. */
void price_put(void);

#endif

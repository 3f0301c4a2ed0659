/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TLSTAX_CELLS_H
#define TLSTAX_CELLS_H

#include "types.h"

#include "ledger.h"

/* The cells of an account, time by phase and state and how often each phase was, in rows. */
enum { CELLS = PHASES * STATES + PHASES, ROW = STATES, ROWS = CELLS / ROW };

/* What was put of an account into the stream. */
struct sent_cells {
	u8 used[ROWS]; /* bit n: cell n of the row was ever not 0 */
	u64 cells[CELLS];
};

struct changed_cells {
	u32 count;
	u32 index[CELLS];
	u64 value[CELLS];
};

/*
 * The cells that differ from what was put, if the reader has it. Else, after a window that had no
 * room, all that may differ from what the reader has: those that are or were ever not 0. In
 * ascending order, so that the counts of phases come last.
 */
void cells_compare(const u64 *cells, const struct sent_cells *sent, bool is_known,
		   struct changed_cells *changed);

void cells_sent(struct sent_cells *sent, const struct changed_cells *changed);

/* Fetch what cells_compare() will read of an account that changed. */
void cells_fetch(const struct thread_slot *slot, const struct sent_cells *sent);

#endif

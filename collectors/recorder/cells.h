/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TLSTAX_CELLS_H
#define TLSTAX_CELLS_H

#include "types.h"

#include "ledger.h"

/* The cells of an account, time by phase and state and how often each phase was, in rows. */
enum { CELLS = PHASES * STATES + PHASES, ROW = STATES, ROWS = CELLS / ROW };

/* What the reader of the stream has of an account. */
struct sent_cells {
	u32 used_rows; /* bit n: a cell of row n was ever sent; all others are 0 */
	u64 cells[CELLS];
};

struct changed_cells {
	u32 count;
	u32 index[CELLS];
	u64 value[CELLS];
};

/* The cells that differ from what was sent, or all if that is NULL. */
void cells_compare(const struct thread_slot *slot, const struct sent_cells *sent,
		   struct changed_cells *changed);

/* What changed was sent. Whether a cell is 0 again: time that was taken back. */
bool cells_sent(struct sent_cells *sent, const struct changed_cells *changed);

/* Fetch what cells_compare() will read of an account that changed. */
void cells_fetch(const struct thread_slot *slot, const struct sent_cells *sent);

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cells of accounts. With many threads most of a window's time is waiting for memory, and most
 * rows of most accounts are never used: those are read where the programs keep them, not twice.
 */
#include <stddef.h>
#include <string.h>

#include "cells.h"

enum { LINE_BYTES = 64 };

_Static_assert(offsetof(struct thread_slot, count) ==
		       offsetof(struct thread_slot, ns) + PHASES * STATES * sizeof(u64),
	       "all cells in a row");
_Static_assert(CELLS % ROW == 0 && ROWS <= 32, "a bit for each row");

static bool is_equal(const u64 *now, const u64 *sent)
{
	u64 difference = 0;

	for (u32 i = 0; i < ROW; i++)
		difference |= now[i] ^ sent[i];
	return !difference;
}

void cells_compare(const struct thread_slot *slot, const struct sent_cells *sent,
		   struct changed_cells *changed)
{
	static const u64 unused[ROW];
	const u64 *cells = &slot->ns[0][0];
	u64 now[ROW];

	changed->count = 0;
	for (u32 row = 0; row < ROWS; row++) {
		const u64 *before =
			sent && sent->used_rows & 1U << row ? sent->cells + row * ROW : unused;
		memcpy(now, cells + row * ROW, sizeof(now)); /* the programs go on meanwhile */
		if (sent && is_equal(now, before))
			continue;
		for (u32 i = 0; i < ROW; i++) {
			if (sent && now[i] == before[i])
				continue;
			changed->index[changed->count] = row * ROW + i;
			changed->value[changed->count++] = now[i];
		}
	}
}

bool cells_sent(struct sent_cells *sent, const struct changed_cells *changed)
{
	bool has_shrunk = false;

	for (u32 i = 0; i < changed->count; i++) {
		sent->cells[changed->index[i]] = changed->value[i];
		sent->used_rows |= 1U << changed->index[i] / ROW;
		has_shrunk |= !changed->value[i];
	}
	return has_shrunk;
}

void cells_fetch(const struct thread_slot *slot, const struct sent_cells *sent)
{
	for (const u8 *at = (const void *)slot; at < (const u8 *)slot->frames; at += LINE_BYTES)
		__builtin_prefetch(at);
	for (u32 rows = sent->used_rows; rows; rows &= rows - 1)
		__builtin_prefetch(sent->cells + __builtin_ctz(rows) * ROW);
}

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
_Static_assert(CELLS % ROW == 0 && ROW == 8, "a bit for each cell of a row");

static bool is_equal(const u64 *now, const u64 *sent)
{
	u64 difference = 0;

	for (u32 i = 0; i < ROW; i++)
		difference |= now[i] ^ sent[i];
	return !difference;
}

void cells_compare(const u64 *cells, const struct sent_cells *sent, bool is_known,
		   struct changed_cells *changed)
{
	static const u64 unused[ROW];
	u64 now[ROW];

	changed->count = 0;
	for (u32 row = 0; row < ROWS; row++) {
		u32 used = sent->used[row];
		const u64 *before = used ? sent->cells + row * ROW : unused;
		memcpy(now, cells + row * ROW, sizeof(now)); /* the programs go on meanwhile */
		if ((is_known || !used) && is_equal(now, before))
			continue;
		for (u32 i = 0; i < ROW; i++) {
			if (is_known ? now[i] == before[i] : !now[i] && !(used >> i & 1))
				continue;
			changed->index[changed->count] = row * ROW + i;
			changed->value[changed->count++] = now[i];
		}
	}
}

void cells_sent(struct sent_cells *sent, const struct changed_cells *changed)
{
	for (u32 i = 0; i < changed->count; i++) {
		u32 index = changed->index[i];
		sent->cells[index] = changed->value[i];
		if (changed->value[i])
			sent->used[index / ROW] |= 1U << index % ROW;
	}
}

void cells_fetch(const struct thread_slot *slot, const struct sent_cells *sent)
{
	for (const u8 *at = (const void *)slot; at < (const u8 *)slot->frames; at += LINE_BYTES)
		__builtin_prefetch(at);
	for (u32 row = 0; row < ROWS; row++)
		if (sent->used[row])
			__builtin_prefetch(sent->cells + row * ROW);
}

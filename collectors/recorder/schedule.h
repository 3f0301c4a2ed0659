/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is on when, what it costs, and when a window ends.
 *
 * Without a budget one level is on all the time. With one, a trial at the full level comes first,
 * and then the windows that pace.h asks for.
 */
#ifndef TLSTAX_SCHEDULE_H
#define TLSTAX_SCHEDULE_H

#include "levels.h"
#include "options.h"
#include "window.h"

/* Why the level is what it is; for the frame of the budget. */
void schedule_note_level(const struct level_choice *choice);

/* Attached: the first window begins. False: the queue has no room for its totals. */
bool schedule_begin(const struct options *options, struct windows *windows, struct engine *engine,
		    const struct plan *plan, const struct target *target);

/* When schedule_step() has something to do. */
u64 schedule_wake_ns(void);

/* The present window ends at this time, or now if that is to come; one that ended since is enough.
 */
void schedule_end_window(u64 ns);

/* Do what is due. -1: it cannot go on. */
int schedule_step(void);

/* Read the totals of the last window; false: there is no room yet, call it again. */
bool schedule_cut_last(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Windows: the totals of the programs at an instant. */
#ifndef TLSTAX_WINDOW_H
#define TLSTAX_WINDOW_H

#include "engine.h"

struct windows {
	u64 number;	  /* of the next window */
	u64 merged_count; /* windows that were not cut because the stream was full */
	bool is_full;	  /* the last window had no room */
};

/*
 * End a window at `end_ns`, which is now or just over; false: the stream has no room, and it goes
 * on. The first one is not a window: it holds the totals at which the recording begins.
 */
bool window_cut(struct windows *windows, struct engine *engine, const struct target *target,
		u64 end_ns);

/*
 * Between two windows: handshakes and ended threads, so that there is room for more of them. True:
 * much of that room was used since the last time.
 */
bool window_drain(struct engine *engine);

/* Let the kernel time the programs, or stop it. */
void statistics_turn(bool on);

#endif

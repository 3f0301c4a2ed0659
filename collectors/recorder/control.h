/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * --control: whoever started the recorder says through standard input when windows end.
 *
 *   cut NS     end the present window at this time of CLOCK_MONOTONIC (0: now); a window that
 *              ended there or later by itself is enough
 *
 * At its end the recording ends in order. Windows of several recorders, one for each process, so
 * have the same ends.
 */
#ifndef TLSTAX_CONTROL_H
#define TLSTAX_CONTROL_H

#include "types.h"

void control_open(void);

/* What to wait on while recording, -1: nothing. */
int control_line(void);

/* Take what came, after poll() said that something did; whether the recording goes on. */
bool control_take(void);

/* When the present window is to end; false: nobody asked. */
bool control_cut(u64 *ns);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The end of one target's recording, in this order: read, detach, write. */
#ifndef TLSTAX_ENDING_H
#define TLSTAX_ENDING_H

#include "types.h"

/* The target ended, or executed `program`: the failure says so. */
void ending_of_target(const char *program);

/* Read the totals of the last window and detach. What had no room is still in the maps. */
void ending_detach(void);

/* Put the last window, if it had no room before; false: it has none now. */
bool ending_cut(void);

/* Put what comes after it: nothing more is sent of this target. */
void ending_close(void);

/* The recording of one of several targets is over; the others go on, without its failure. */
void ending_of_one(void);

/* Put what comes after its last window, if there is room now: it is not tried again. */
void ending_close_one(void);

#endif

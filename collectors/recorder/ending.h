/* SPDX-License-Identifier: GPL-2.0-only */
/* The end of one target's recording, in this order: read, detach, write. */
#ifndef TLSTAX_ENDING_H
#define TLSTAX_ENDING_H

#include "types.h"

/* After a failure: whether the target is ending, which is why. The failure is forgotten then. */
bool ending_is_why(void);

/* The target ended, or executed `program`: the failure says so. */
void ending_of_target(const char *program);

/* Read the totals of the last window and detach. What had no room is still in the maps. */
void ending_detach(void);

/* Put the last window, if it had no room before; false: it has none now. */
bool ending_cut(void);

/* Put what comes after it, last its end: nothing more is sent of this target. False: there is no
 * room for all of it, call it again. */
bool ending_close(void);

/* There is no room and will be none: put the end, if it fits, which says what is lost. */
void ending_give_up(void);

/* The recording of one of several targets is over; the others go on, without its failure. */
void ending_of_one(void);

/* Put what comes after its last window, when there is room: until then call it again. */
void ending_close_one(void);

#endif

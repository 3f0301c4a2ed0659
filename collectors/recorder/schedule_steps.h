/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the schedule share. */
#ifndef TLSTAX_SCHEDULE_STEPS_H
#define TLSTAX_SCHEDULE_STEPS_H

#include "session.h"

#define state (session->schedule)
#define NEVER_NS (1ULL << 62)

/* Read the counters into `now`, or into `watched`. */
void read_now(void);

/* The same where a window or a look at it ends and the level is what it was: see meter_read(). */
void read_again(void);
void read_watched(void);

/* The overhead since the windows were settled last. */
void settle(struct span *span);

/* Where a window ends: the next one goes on like it, its levels differ, or the ledger begins. */
enum edge { EDGE_INNER, EDGE_OUTER, EDGE_RESTART };

/* End a window at `now`; false: there is no room. */
bool cut(int level, enum edge edge);

/* The same for one that is late: without room again it is no further part of a longer one. */
bool cut_again(int level, enum edge edge);

/* Whether there is room for what a ledger begins with, as far as it is known; at times in any case.
 */
bool may_rise(bool is_doubtful);

/* What was attached has no room to begin: back to a level, for some seconds. */
int fall_back(int level);

/* Attach and detach what a level needs. */
int turn(int level);

/* The window goes on as it is. */
int stay(void);

/* Keep what the present window, which had no room, cost at the level that it leaves now. */
void carry_cost(void);

/* Add that where it is sent. */
void tell_carried(struct overhead *spent);

/* What calibration stretches need between them is on where there can be any. */
int follow_with_stretches(void);

/* Go on to the level of a step. */
int follow(struct step step, bool is_cut);

/* The same, when what precedes it has been done. */
int enter(struct step step);

/* The trial is over: choose by what it cost. */
int judge(void);

#endif

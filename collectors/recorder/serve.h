/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * --serve: requests from standard input, one a line, answers to standard output.
 *
 *   find NAME                 the processes of that name: FACT frames
 *   group WORD                those with WORD in the names of their control groups, without what
 *                             their command lines hold: FACT frames
 *   facts PID SYMBOL...       what planning needs: FACT, LINK and MAPPING frames
 *   file PID START            parts of the file mapped at address START (hex): FILE, PART frames
 *   prices                    what a probe hit costs: a FACT frame (prices.h), after preflight
 *   target PLAN TABLES OPTION...  a process to record, the first or one more: so many bytes of its
 *                             plan and of its unwind tables follow. Options for all are the first's
 *   record                    the recording of these processes is written
 *   record together           the same: windows of all end with those of the first process, and so
 *                             does the recording. No process has a budget
 *
 * Each answer but the last ends with ANSWERED, or with ERROR; after an error requests go on only if
 * it is that a process cannot be looked at. The first frame says which recorder this is.
 * While it records, standard input is the life line: the recording ends in order at an `s`, and as
 * if the reader were gone at its end, or if nothing comes for 20 s.
 */
#ifndef TLSTAX_SERVE_H
#define TLSTAX_SERVE_H

#include <stdbool.h>

/* Answer until a recording is asked for, of sessions that are then complete: the one whose turn it
 * is takes the first target. -1: it failed. Does not return if no more requests come. */
int serve(void);

/* What to wait on while recording, -1: no life line. */
int serve_life_line(void);

/* Whether the life line ends the recording; failure says so unless it was asked for. */
bool serve_is_over(void);

/* Whether windows of all processes end with those of the first, and the recording does. */
bool serve_is_together(void);

#endif

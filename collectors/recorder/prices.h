/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a probe hit costs on this host: CPU time of its trap, without a program that does anything.
 *
 * It is measured on code of a child process, so that no other process is probed: by 1, 2, 4 ... and
 * all CPUs that this process may use, at the same time, within a second in all.
 *
 *   uprobe_multi emulated 2 431.2 429.8 ...
 *
 * is one line of the result: the kind of link; whether the kernel emulates the instruction or
 * single-steps it (`stepped`); the number of CPUs; nanoseconds of each round.
 */
#ifndef TLSTAX_PRICES_H
#define TLSTAX_PRICES_H

#include "types.h"

enum { PRICES_BYTES = 16384 };

/*
 * Measure into `text`, of PRICES_BYTES. If nothing could be measured it is empty, and *why says the
 * reason. What was measured until the time was over is kept. It ends early when the other end of
 * the pipe or socket `line` is closed; -1: there is none.
 */
void prices_measure(int line, char *text, const char **why);

/* Measure, and print that. -1: failure says why not. */
int prices_print(void);

#endif

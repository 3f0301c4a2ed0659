/* SPDX-License-Identifier: GPL-2.0-only */
/* What the recorder gives up once everything is open: docs/recorder.md lists what it keeps. */
#ifndef TLSTAX_PRIVILEGES_H
#define TLSTAX_PRIVILEGES_H

#include <stdbool.h>
#include <sys/types.h>

/* All capabilities of the calling thread: for threads and processes that only write or wait. */
void privileges_give_up(void);

/*
 * Capabilities of the calling thread but those that reading and switching of levels need; and, for
 * all threads, system calls that a recording does not make: they fail with EPERM. Of other
 * processes only the watchdog can be sent a signal. False: this kernel has no filters of system
 * calls.
 */
bool privileges_keep_needed(pid_t watchdog);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether a process does not run because others have the CPUs: it is neither stopped nor stuck. */
#ifndef TLSTAX_STARVATION_H
#define TLSTAX_STARVATION_H

#include <stdbool.h>
#include <sys/types.h>

#include "types.h"

/* Whether the main thread of a process is runnable, and so runs or waits for a CPU. */
bool is_runnable(pid_t pid);

/* How long the main thread of this process has waited for a CPU so far; 0: not counted here. */
u64 own_wait_ns(void);

#endif

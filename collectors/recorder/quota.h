/* SPDX-License-Identifier: GPL-2.0-only */
/* The target's CPU quota, and the TCP timers of its network: counters of the kernel. */
#ifndef TLSTAX_QUOTA_H
#define TLSTAX_QUOTA_H

#include "types.h"

/* Find the control groups and the network of a process. What it has not, is not counted. */
void quota_open(int pid);

/* Put the counters of groups that changed; false: no room. */
bool quota_put(void);

/* What was put was not committed: send all again. */
void quota_forget(void);

/* Acknowledgements that were delayed by a timer; all bits set: unknown. */
u64 delayed_ack_count(void);

#endif

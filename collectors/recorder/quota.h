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

/* What the kernel counted of the target's network since its start; all bits set: unknown. */
struct tcp_counts {
	u64 delayed_acks;     /* acknowledgements that were delayed by a timer */
	u64 listen_overflows; /* connections that found a queue of new connections full */
};

struct tcp_counts tcp_counts(void);

#endif

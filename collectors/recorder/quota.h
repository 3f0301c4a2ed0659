/* SPDX-License-Identifier: GPL-2.0-only */
/* The target's CPU quota, and the TCP timers of its network: counters of the kernel. */
#ifndef TLSTAX_QUOTA_H
#define TLSTAX_QUOTA_H

#include "types.h"

#include "stream.h"

enum { QUOTA_GROUPS_MOST = 16 };

/* What is counted of a process. */
struct quota {
	struct quota_group {
		int fd; /* of its cpu.stat */
		struct stream_quota sent;
	} groups[QUOTA_GROUPS_MOST];
	u32 groups_count;
	int netstat_fd; /* -1: there is none */
};

/* Find the control groups and the network of a process. What it has not, is not counted. */
void quota_open(struct quota *quota, int pid);

/* Put the counters of groups that changed; false: no room. */
bool quota_put(struct quota *quota);

/* What was put was not committed: send all again. */
void quota_forget(struct quota *quota);

/* What the kernel counted of the target's network since its start; all bits set: unknown. */
struct tcp_counts {
	u64 delayed_acks;     /* acknowledgements that were delayed by a timer */
	u64 listen_overflows; /* connections that found a queue of new connections full */
};

struct tcp_counts tcp_counts(const struct quota *quota);

#endif

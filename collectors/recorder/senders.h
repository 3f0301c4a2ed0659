/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The processes that send to sockets, and how often: a server, and who talks to it on this host.
 *
 * A program of its own counts them, from Linux 6.3 on.
 */
#ifndef TLSTAX_SENDERS_H
#define TLSTAX_SENDERS_H

#include "types.h"

enum { SENDERS_MOST = 64 };

struct sender {
	int pid;
	u64 sends;  /* so far */
	u64 cpu_ns; /* by its clock; 0: it has ended */
};

/* Begin to count. False: this host has no such tracepoint. */
bool senders_begin(void);
void senders_end(void);

u64 senders_count(int pid);

/* Of all processes but one. */
u64 senders_count_others(int without_pid);

/* Those but that one which have sent at least so often; their number, as many as there is room for.
 */
u32 senders_find(int without_pid, u64 least, struct sender senders[SENDERS_MOST]);

/* Their counts and clocks now. */
void senders_read(struct sender *senders, u32 count);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is attached to each target, in groups that are detached one after another.
 *
 * Closing a link waits until the kernel has removed its probes, 30 to 100 ms on a busy host. So the
 * descriptors of a group are closed by several threads, which wait for that from the start.
 */
#ifndef TLSTAX_LINKS_H
#define TLSTAX_LINKS_H

#include "types.h"

enum link_group {
	LINKS_SAMPLER,
	LINKS_FUNCTIONS,
	LINKS_BESIDE_DENSE,
	LINKS_BESIDE_TRAPS,
	LINKS_BESIDE_CONNECTIONS,
	LINKS_BESIDE_DETAILS,
	LINKS_BESIDE_RARE,
	LINKS_BESIDE_ALWAYS,
	LINKS_DENSE,
	LINKS_TRAPS, /* the probes of a dense level: they end with LINKS_DENSE, or before it */
	LINKS_CONNECTIONS,
	LINKS_DETAILS, /* operations of handshakes but signatures */
	LINKS_RARE,
	LINKS_ALWAYS,
	LINK_GROUPS
};

/* The same group of an engine that is attached beside the first one. */
static inline enum link_group links_beside(enum link_group group)
{
	return (enum link_group)(group - LINKS_DENSE + LINKS_BESIDE_DENSE);
}

int links_prepare(void);

/* Keep a descriptor that holds something attached; below 0: an error, which is returned. */
int links_add(enum link_group group, int fd);

/* Close one of them now: what it held has ended already. */
void links_drop(int fd);

/* Detach a group of the target whose turn it is; dense ones with their traps. */
void links_close_group(enum link_group group);

/* Detach several at once, a bit for each: waiting for one takes as long as for all. */
void links_close_groups(u32 groups);

/* Detach everything of it, group by group. */
void links_close(void);

#endif

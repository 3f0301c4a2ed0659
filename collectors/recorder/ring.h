/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's ring buffers, read without libbpf's copy (Documentation/bpf/ringbuf.rst). */
#ifndef TLSTAX_RING_H
#define TLSTAX_RING_H

#include "types.h"

struct ring {
	u64 *consumer;
	const u64 *producer;
	u32 bytes;
};

/* Map the ring behind a map's descriptor. */
int ring_map(struct ring *ring, int fd, u32 bytes);

/*
 * Take records until there are no more, or `take` returns false: that one stays in the ring, which
 * counts what then finds no room. Returns how far it was read, for ring_release(); *is_empty says
 * whether nothing stayed.
 */
u64 ring_read(const struct ring *ring, bool (*take)(const void *record, u32 bytes), bool *is_empty);

/* How many bytes wait to be read. */
u64 ring_waiting_bytes(const struct ring *ring);

/* What was read makes room for more. */
void ring_release(const struct ring *ring, u64 position);

#endif

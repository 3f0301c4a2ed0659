// SPDX-License-Identifier: GPL-2.0-only
#include "ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"

int ring_map(struct ring *ring, int fd, u32 bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	ring->bytes = bytes;
	ring->consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ring->producer =
		mmap(NULL, page + 2 * (size_t)bytes, PROT_READ, MAP_SHARED, fd, (off_t)page);
	if (ring->consumer == MAP_FAILED || ring->producer == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "cannot map a ring buffer: %s", strerror(errno));
	return 0;
}

u64 ring_read(const struct ring *ring, bool (*take)(const void *record, u32 bytes), bool *is_empty)
{
	const u8 *data = (const u8 *)ring->producer + sysconf(_SC_PAGESIZE);
	u64 at = *ring->consumer, end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);

	*is_empty = true;
	while (at < end) {
		const u32 *head = (const void *)(data + (at & (ring->bytes - 1)));
		u32 length = __atomic_load_n(head, __ATOMIC_ACQUIRE);
		if (length & BPF_RINGBUF_BUSY_BIT)
			break;
		u32 bytes = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		if (!(length & BPF_RINGBUF_DISCARD_BIT) &&
		    !take((const u8 *)head + BPF_RINGBUF_HDR_SZ, bytes)) {
			*is_empty = false;
			break;
		}
		at += (bytes + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
	}
	return at;
}

u64 ring_waiting_bytes(const struct ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - *ring->consumer;
}

void ring_release(const struct ring *ring, u64 position)
{
	__atomic_store_n(ring->consumer, position, __ATOMIC_RELEASE);
}

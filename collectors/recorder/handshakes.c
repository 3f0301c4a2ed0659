// SPDX-License-Identifier: GPL-2.0-only
/* Handshake records, from the kernel's ring buffer (Documentation/bpf/ringbuf.rst). */
#include <linux/bpf.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "stream.h"
#include "totals.h"

bool handshakes_drain(struct engine *engine, bool discard)
{
	u64 *consumer = engine->ring_consumer;
	const u64 *producer = engine->ring_producer;
	const u8 *data = (const u8 *)engine->ring_producer + sysconf(_SC_PAGESIZE);
	bool has_room = true;
	u64 at = *consumer, end = __atomic_load_n(producer, __ATOMIC_ACQUIRE);

	while (at < end) {
		const u32 *head = (const void *)(data + (at & (engine->ring_bytes - 1)));
		u32 length = __atomic_load_n(head, __ATOMIC_ACQUIRE);
		if (length & BPF_RINGBUF_BUSY_BIT)
			break;
		u32 bytes = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		if (!(length & BPF_RINGBUF_DISCARD_BIT) && !discard) {
			struct handshake *frame = output_put(STREAM_HANDSHAKE, sizeof(*frame));
			has_room = frame != NULL;
			if (!has_room)
				break; /* it stays in the ring, which counts what finds no room */
			memcpy(frame, (const u8 *)head + BPF_RINGBUF_HDR_SZ,
			       bytes < sizeof(*frame) ? bytes : sizeof(*frame));
			frame->ssl = 0; /* an address in the target */
		}
		at += (bytes + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
	}
	output_commit();
	__atomic_store_n(consumer, at, __ATOMIC_RELEASE);
	return has_room;
}

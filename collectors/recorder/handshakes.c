// SPDX-License-Identifier: GPL-2.0-only
/* Handshake records, from the kernel's ring buffer. */
#include <string.h>

#include "output.h"
#include "ring.h"
#include "stream.h"
#include "totals.h"

static bool put_handshake(const void *record, u32 bytes)
{
	struct handshake *frame = output_put(STREAM_HANDSHAKE, sizeof(*frame));

	if (!frame)
		return false;
	memcpy(frame, record, bytes < sizeof(*frame) ? bytes : sizeof(*frame));
	frame->ssl = 0; /* an address in the target */
	return true;
}

static bool leave_out(const void *record, u32 bytes)
{
	(void)record;
	(void)bytes;
	return true;
}

bool handshakes_drain(struct engine *engine, bool discard)
{
	bool has_room;
	u64 position = ring_read(&engine->records, discard ? leave_out : put_handshake, &has_room);

	output_commit();
	ring_release(&engine->records, position);
	return has_room;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "answers.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "failure.h"
#include "stream.h"

static struct {
	struct stream_head head;
	u8 content[STREAM_FRAME_MOST];
} frame;
static u32 sequence;

void answer_begin(u16 type)
{
	frame.head = (struct stream_head){
		.magic = STREAM_MAGIC,
		.type = (u8)type,
		.version = STREAM_VERSION,
		.sequence = sequence++,
	};
}

size_t answer_room(void)
{
	return sizeof(frame.content) - frame.head.used_bytes;
}

void answer_add(const void *bytes, size_t length)
{
	if (length > answer_room())
		length = answer_room();
	memcpy(frame.content + frame.head.used_bytes, bytes, length);
	frame.head.used_bytes += (u32)length;
}

int answer_send(void)
{
	u32 used = frame.head.used_bytes, length = (used + 7) / 8 * 8;
	size_t left = sizeof(frame.head) + length;

	memset(frame.content + used, 0, length - used);
	frame.head.length_bytes = length;
	frame.head.crc32 = (u32)crc32(0, (const u8 *)&frame, (u32)left);
	for (const u8 *at = (const u8 *)&frame; left;) {
		alarm(ANSWER_PATIENCE_S);
		ssize_t done = write(STDOUT_FILENO, at, left);
		if (done < 0 && errno != EINTR)
			return fail(EXIT_CODE_IO, "the answer cannot be written: %s",
				    strerror(errno));
		at += done > 0 ? done : 0;
		left -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

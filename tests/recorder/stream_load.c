// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames of random sizes through the recorder's queue to standard output: stream_load COUNT SEED.
 *
 * Every committed record holds the next number; what is rolled back uses none. The reader of the
 * output then has to find all numbers in order. Built with the sanitizers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "output.h"
#include "stream.h"

enum { QUEUE_BYTES = 1 << 18, BATCH_MOST = 400, STACK_MOST = 64 };

static unsigned long long state;

static unsigned long long chance(unsigned long long most)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % most;
}

/* Records of one batch; false: there was no room for all. */
static bool put_batch(u64 *next)
{
	for (u64 left = 1 + chance(BATCH_MOST); left--; (*next)++) {
		u32 depth = (u32)chance(STACK_MOST);
		if (chance(2)) {
			struct stream_hits *hits = output_put(STREAM_HITS, sizeof(*hits));
			if (!hits)
				return false;
			hits->site = *next;
			continue;
		}
		struct stream_stack *stack =
			output_put(STREAM_STACK, sizeof(*stack) + depth * sizeof(u64));
		if (!stack)
			return false;
		*stack = (struct stream_stack){(u32)*next, depth};
		memset(stack + 1, 0xa5, depth * sizeof(u64));
	}
	return true;
}

int main(int count, char **arguments)
{
	u64 next = 0, committed = 0, refused = 0;

	if (count != 3 || output_open(STDOUT_FILENO, QUEUE_BYTES))
		return 2;
	u64 wanted = strtoull(arguments[1], NULL, 10);
	state = strtoull(arguments[2], NULL, 10) | 1;
	while (committed < wanted) {
		bool has_room = put_batch(&next);
		if (has_room && chance(8)) {
			output_commit();
			committed = next;
			continue;
		}
		output_rollback();
		next = committed;
		refused += !has_room;
		if (!has_room)
			usleep(500);
	}
	u64 left = output_finish(10 * NS_PER_S);
	fprintf(stderr, "%llu records, %llu times no room, %llu bytes left\n", committed, refused,
		left);
	_exit(left ? 1 : 0);
}

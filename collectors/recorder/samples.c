// SPDX-License-Identifier: GPL-2.0-only
/* CPU samples, waits and their stacks: taken out of the maps while the stream has room. */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "output.h"
#include "session.h"
#include "stream.h"
#include "totals.h"

enum { BATCH = 128, BATCH_MOST = 4096, FIRST_STACKS = 32768 };

static union {
	struct sample_key samples[BATCH_MOST];
	struct offcpu_key waits[BATCH_MOST];
} keys;
static union {
	u64 samples[BATCH_MOST];
	struct offcpu_value waits[BATCH_MOST];
} values;

/* Of a batch, with two stacks each. */
static size_t room_for(u32 count)
{
	return (size_t)count * (sizeof(struct stream_sample) +
				2 * (sizeof(struct stream_stack) + 8 * STACK_DEPTH)) +
	       8 * sizeof(struct stream_head) + sizeof(struct stream_window);
}

static void put_stack(const struct engine *engine, s32 stack, bool is_kernel)
{
	u32 id = (u32)stack & ~(u32)MORE_STACKS, depth = 0;
	u32 number = stack & MORE_STACKS ? FIRST_STACKS + id : id;
	u64 addresses[STACK_DEPTH];

	if (stack < 0 || number >= STACK_IDS_MOST ||
	    session->stacks_sent[number / 8] >> number % 8 & 1)
		return;
	if (bpf_map_lookup_elem(stack & MORE_STACKS ? engine->more_stacks_fd : engine->stacks_fd,
				&id, addresses))
		return;
	while (depth < STACK_DEPTH && addresses[depth])
		depth++;
	struct stream_stack *frame = output_put(STREAM_STACK, sizeof(*frame) + depth * sizeof(u64));
	if (!frame)
		return;
	*frame = (struct stream_stack){(u32)stack, depth};
	memcpy(frame + 1, addresses, depth * sizeof(u64));
	session->stacks_sent[number / 8] |= (u8)(1 << number % 8);
	/* All but the leaf are return addresses: the call is just before them. */
	for (u32 i = 0; is_kernel && i < depth; i++)
		kernel_address_add(addresses[i] - (i > 0));
}

static void put_samples(const struct engine *engine, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		put_stack(engine, keys.samples[i].user_stack, false);
		put_stack(engine, keys.samples[i].kernel_stack, true);
		if (keys.samples[i].kernel_ip)
			kernel_address_add(keys.samples[i].kernel_ip);
	}
	for (u32 i = 0; i < count; i++) {
		const struct sample_key *key = &keys.samples[i];
		struct stream_sample *frame = output_put(STREAM_SAMPLE, sizeof(*frame));
		if (frame)
			*frame = (struct stream_sample){
				key->phase,   key->syscall,   key->user_stack,	 key->kernel_stack,
				key->user_ip, key->kernel_ip, values.samples[i],
			};
	}
}

static u64 put_waits(const struct engine *engine, u32 count)
{
	u64 walked = 0;

	for (u32 i = 0; i < count; i++) {
		put_stack(engine, keys.waits[i].user_stack, false);
		put_stack(engine, keys.waits[i].kernel_stack, true);
	}
	for (u32 i = 0; i < count; i++) {
		const struct offcpu_key *key = &keys.waits[i];
		const struct offcpu_value *value = &values.waits[i];
		struct stream_wait *frame = output_put(STREAM_WAIT, sizeof(*frame));
		if (frame)
			*frame = (struct stream_wait){
				key->phase,	   key->state, key->syscall,	  key->user_stack,
				key->kernel_stack, 0,	       value->wait_count, value->time_ns,
			};
		walked += value->wait_count;
	}
	return walked;
}

/* Read and delete the entries of a hash map. Those added meanwhile may stay for the next window. */
static u64 drain(const struct engine *engine, bool is_waits, bool discard)
{
	u32 most = BATCH;
	u64 walked = 0, cursor[8];
	bool is_first = true;
	int error;

	do {
		u32 count = most;
		if (!discard && !output_has_room(room_for(most)))
			return walked;
		error = bpf_map_lookup_and_delete_batch(
			is_waits ? engine->offcpu_fd : engine->samples_fd, is_first ? NULL : cursor,
			cursor, &keys, &values, &count, NULL);
		if (error == -ENOSPC &&
		    most < BATCH_MOST) { /* a bucket holds more than the batch */
			most = BATCH_MOST;
			error = 0;
			continue;
		}
		if (error && error != -ENOENT)
			return walked;
		is_first = false;
		if (!discard && is_waits)
			walked += put_waits(engine, count);
		else if (!discard)
			put_samples(engine, count);
	} while (!error);
	return walked;
}

void samples_drain(struct engine *engine, u64 *walked, bool discard)
{
	drain(engine, false, discard);
	*walked = drain(engine, true, discard);
}

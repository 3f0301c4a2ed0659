/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls, bytes and times of each function, and losses. */
#ifndef TLSTAX_FUNCTION_SUMS_BPF_H
#define TLSTAX_FUNCTION_SUMS_BPF_H

#include "buckets.bpf.h"
#include "functions.h"
#include "slots.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct function_key);
	__type(value, struct function_sum);
} function_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct function_bucket);
	__type(value, u64);
} function_times SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FUNCTION_LOSSES);
	__type(key, u32);
	__type(value, u64);
} function_losses SEC(".maps");

static __always_inline void lose_many(u32 kind, u64 times)
{
	u64 *count = bpf_map_lookup_elem(&function_losses, &kind);
	if (count)
		__sync_fetch_and_add(count, times);
}

static __always_inline void lose(u32 kind)
{
	lose_many(kind, 1);
}

/* ---- sums ---- */

static __always_inline u32 size_class(u64 size_bytes)
{
	u32 class = size_bytes ? log2_floor(size_bytes) + 1 : 0;
	return class < SIZE_CLASSES ? class : SIZE_CLASSES - 1;
}

static __always_inline struct function_sum *find_sum(u32 function, u32 phase, u64 size_bytes)
{
	struct function_key key = {
		.function = function,
		.phase = phase,
		.size_class = size_class(size_bytes),
		.shard = bpf_get_smp_processor_id() % FUNCTION_SHARDS,
	};
	struct function_sum *sum = bpf_map_lookup_elem(&function_sums, &key);
	if (sum)
		return sum;
	struct function_sum zero = {};
	bpf_map_update_elem(&function_sums, &key, &zero, BPF_NOEXIST);
	sum = bpf_map_lookup_elem(&function_sums, &key);
	if (!sum)
		lose(FUNCTION_LOSS_MAP_FULL);
	return sum;
}

static __always_inline void count_call(u32 function, u32 phase, u64 size_bytes)
{
	struct function_sum *sum = find_sum(function, phase, size_bytes);
	if (!sum)
		return;
	__sync_fetch_and_add(&sum->call_count, 1);
	__sync_fetch_and_add(&sum->size_bytes, size_bytes);
}

static __always_inline void add_time(struct call *call, u64 spent)
{
	struct function_sum *sum = find_sum(call->function, call->phase, call->size_bytes);
	struct function_bucket key = {
		.function = call->function,
		.size_class = size_class(call->size_bytes),
		.bucket = latency_bucket(spent),
	};
	u64 one = 1;

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->timed_count, 1);
	__sync_fetch_and_add(&sum->timed_bytes, call->size_bytes);
	__sync_fetch_and_add(&sum->time_ns, spent);
	if (call->traps_ns) {
		__sync_fetch_and_add(&sum->nested_ns, call->nested_ns);
		__sync_fetch_and_add(&sum->traps_ns, call->traps_ns);
		__sync_fetch_and_add(&sum->direct_traps_ns, call->direct_traps_ns);
	}
	u64 *count = bpf_map_lookup_elem(&function_times, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&function_times, &key, &one, BPF_NOEXIST)) {
		count = bpf_map_lookup_elem(&function_times, &key);
		if (count)
			__sync_fetch_and_add(count, 1);
		else
			lose(FUNCTION_LOSS_MAP_FULL);
	}
}

#endif

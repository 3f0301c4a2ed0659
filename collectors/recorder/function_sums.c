// SPDX-License-Identifier: GPL-2.0-only
/* What was counted of functions: totals of which a window sends those that changed. */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "function_probes.h"
#include "output.h"
#include "session.h"
#include "stream.h"

#define functions (session->functions)

/* Entries of the maps (probes/bpf/function_sums.bpf.h); size classes as a power of 2. */
enum { SUMS_MOST = 8192, TIMES_MOST = FUNCTION_PLACES / 2 };

/* By function, phase and size class: what is known now. Most of it is never touched. */
static struct function_sum now[MAX_FUNCTIONS][PHASES][FUNCTION_CLASSES];

/* Whole maps are read at once: there is room for all of them. */
static struct function_key keys[SUMS_MOST];
static struct function_sum values[SUMS_MOST];
static struct function_bucket buckets[TIMES_MOST];
static u64 counts[TIMES_MOST];

/* All entries of a map; how many. */
static u32 read_map(int fd, void *map_keys, void *map_values, u32 most)
{
	u8 cursor[64];
	u32 count = most;
	int error = bpf_map_lookup_batch(fd, NULL, cursor, map_keys, map_values, &count, NULL);

	return !error || error == -ENOENT ? count : 0; /* ENOENT: this was all */
}

void function_times_of(const struct function_probes *of, u32 function, u64 *count, u64 *time_ns)
{
	u32 found = read_map(of->sums_fd, keys, values, SUMS_MOST);

	*count = *time_ns = 0;
	for (u32 i = 0; i < found; i++)
		if (keys[i].function == function) {
			*count += values[i].timed_count;
			*time_ns += values[i].time_ns;
		}
}

static void add(struct function_sum *sum, const struct function_sum *more)
{
	sum->call_count += more->call_count;
	sum->size_bytes += more->size_bytes;
	sum->timed_count += more->timed_count;
	sum->timed_bytes += more->timed_bytes;
	sum->time_ns += more->time_ns;
	sum->nested_ns += more->nested_ns;
	sum->traps_ns += more->traps_ns;
	sum->direct_traps_ns += more->direct_traps_ns;
}

static bool is_counted(const struct function_key *key)
{
	return key->function < CALIBRATION && key->phase < PHASES &&
	       key->size_class < FUNCTION_CLASSES;
}

static bool put_sum(const struct function_key *key)
{
	static const struct function_sum nothing;
	struct function_sum *sum = &now[key->function][key->phase][key->size_class];
	struct function_sum *before = &functions.sent[key->function][key->phase][key->size_class];

	if (!memcmp(sum, &nothing, sizeof(*sum))) /* another shard's entry has told it */
		return true;
	bool is_new = functions.is_forgotten || memcmp(sum, before, sizeof(*sum)) != 0;
	struct stream_function_sum *frame =
		is_new ? output_put(STREAM_FUNCTION_SUM, sizeof(*frame)) : NULL;
	if (frame) {
		*frame = (struct stream_function_sum){
			.function = key->function,
			.phase = key->phase,
			.size_class = key->size_class,
			.sum = *sum,
		};
		*before = *sum;
	}
	memset(sum, 0, sizeof(*sum));
	return frame || !is_new;
}

static bool put_sums(void)
{
	u32 found = read_map(functions.probes.sums_fd, keys, values, SUMS_MOST);
	bool has_room = true;

	for (u32 i = 0; i < found; i++)
		if (is_counted(&keys[i]))
			add(&now[keys[i].function][keys[i].phase][keys[i].size_class], &values[i]);
	/* To the end even without room, so that nothing stays in `now`. */
	for (u32 i = 0; i < found; i++)
		if (is_counted(&keys[i]))
			has_room = put_sum(&keys[i]) && has_room;
	return has_room;
}

/* The place of a bucket in the table of those that were sent. */
static u64 *count_sent(const struct function_bucket *key)
{
	u32 place = (key->function * 0x9e3779b1U) ^ (key->size_class * 0x85ebca6bU) ^
		    (key->bucket * 0xc2b2ae35U);

	for (u32 i = 0; i < FUNCTION_PLACES; i++) {
		u32 at = ((place ^ place >> 15) + i) % FUNCTION_PLACES;
		if (!functions.sent_times[at].count)
			functions.sent_times[at].key = *key;
		if (!memcmp(&functions.sent_times[at].key, key, sizeof(*key)))
			return &functions.sent_times[at].count;
	}
	return NULL;
}

static bool put_times(void)
{
	u32 found = read_map(functions.probes.times_fd, buckets, counts, TIMES_MOST);

	for (u32 i = 0; i < found; i++) {
		if (buckets[i].function >= CALIBRATION || !counts[i])
			continue;
		u64 *before = count_sent(&buckets[i]);
		if (!before || (*before == counts[i] && !functions.is_forgotten))
			continue;
		struct stream_function_time *frame =
			output_put(STREAM_FUNCTION_TIME, sizeof(*frame));
		if (!frame)
			return false;
		*frame = (struct stream_function_time){
			.function = buckets[i].function,
			.size_class = buckets[i].size_class,
			.bucket = buckets[i].bucket,
			.count = counts[i],
		};
		*before = counts[i];
	}
	return true;
}

static u64 missed_runs_of(struct bpf_program *program)
{
	struct bpf_prog_info info = {0};
	u32 length = sizeof(info);

	return bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &length)
		       ? 0
		       : info.recursion_misses;
}

static bool put_losses(void)
{
	struct stream_function_loss *frame = output_put_alone(STREAM_FUNCTION_LOSS, sizeof(*frame));

	if (!frame)
		return false;
	for (u32 i = 0; i < FUNCTION_LOSSES; i++)
		bpf_map_lookup_elem(functions.probes.losses_fd, &i, &frame->losses[i]);
	frame->losses[FUNCTION_LOSS_RECURSION_MISSED] +=
		missed_runs_of(functions.probes.enter) + missed_runs_of(functions.probes.leave);
	return true;
}

bool function_sums_put(void)
{
	if (!functions.probes.object)
		return true;
	if (!put_sums() || !put_times() || !put_losses())
		return false;
	functions.is_forgotten = false;
	return true;
}

void function_sums_forget(void)
{
	functions.is_forgotten = true;
}

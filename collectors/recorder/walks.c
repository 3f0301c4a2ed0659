// SPDX-License-Identifier: GPL-2.0-only
#include "walks.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "output.h"
#include "proc.h"
#include "session.h"
#include "stream.h"
#include "tables.h"
#include "totals.h"

#define walks (session->walks)

enum {
	ROOM_WORDS = 1 << 17, /* and a quarter, for tables that come later */
	STACKS_MOST = 24576,  /* of UNWIND_STACKS that the programs remember as sent */
	BYTES_MOST = 1 << 26,
	BATCH = 1024,
};
#define LOOK_NS NS_PER_S
#define LOOK_ANYWAY_NS (30 * NS_PER_S)
#define UNUSED (1ULL << 62)

/* Words are written once: tables that are in use do not change. */
static int write_words(const u32 *words, u32 count)
{
	size_t bytes = (size_t)walks.words_most * sizeof(u32);
	u32 *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, walks.words, 0);

	if (memory == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "cannot map the unwind tables: %s", strerror(errno));
	memcpy(memory + walks.words_count, words + walks.words_count,
	       (count - walks.words_count) * sizeof(u32));
	munmap(memory, bytes);
	walks.words_count = count;
	return 0;
}

static int write_rules(const struct unwind_rule *rules, u32 count)
{
	for (; walks.rules_count < count; walks.rules_count++)
		if (bpf_map_update_elem(walks.rules, &walks.rules_count, &rules[walks.rules_count],
					0))
			return fail(EXIT_CODE_HOST, "cannot write the unwind rules: %s",
				    strerror(errno));
	return 0;
}

/* Take the tables of the file; before the programs are loaded only their sizes. */
static int take_file(bool is_loaded)
{
	struct tables found;
	int error = -1;
	const char *why;
	u8 *bytes = copy_file(walks.path, BYTES_MOST, &walks.as_read, &why);
	size_t length = (size_t)walks.as_read.st_size;

	if (!bytes)
		return fail(EXIT_CODE_USAGE, "cannot read the unwind tables %s: %s", walks.path,
			    why);
	if (!tables_parse(&found, bytes, length)) {
		error = 0;
		if (!is_loaded)
			walks.words_most = found.words_count + found.words_count / 4 + ROOM_WORDS;
		else if (found.words_count < walks.words_count ||
			 found.words_count > walks.words_most ||
			 found.rules_count < walks.rules_count)
			error = fail(EXIT_CODE_USAGE, "the unwind tables grew too much");
		else
			error = write_words(found.words, found.words_count) ||
				write_rules(found.rules, found.rules_count);
	}
	if (!error) {
		walks.tables_count = found.tables_count;
		memcpy(walks.tables, found.tables, walks.tables_count * sizeof(*walks.tables));
	}
	munmap(bytes, length);
	return error;
}

int walks_open(const char *file, const struct plan *plan)
{
	/* Where locks of the ring may sleep, the programs must not use it under the scheduler's. */
	bool is_realtime = !access("/sys/kernel/realtime", F_OK);

	walks.path = file;
	if (!walks.path || !plan->has_user_stacks || is_realtime)
		return 0;
	if (take_file(false))
		return -1;
	walks.is_on = walks.tables_count > 0;
	return 0;
}

static int resize(struct bpf_object *object, const char *name, u32 count)
{
	return bpf_map__set_max_entries(bpf_object__find_map_by_name(object, name), count);
}

int walks_configure(struct bpf_object *object, bool is_walking)
{
	if (!is_walking)
		return resize(object, "unwind_words", 1) || resize(object, "walked_ids", 1) ||
		       resize(object, "walked_stacks", 4096);
	u32 chunks =
		walks.is_on ? (walks.words_most + UNWIND_CHUNK_WORDS - 1) / UNWIND_CHUNK_WORDS : 1;
	int error = resize(object, "unwind_words", chunks);

	walks.words_most = chunks * UNWIND_CHUNK_WORDS;
	if (!error && walks.is_on) /* stacks go through the ring, not through the kernel's maps */
		error = resize(object, "unwind_rules", TABLES_RULES_MOST) ||
			resize(object, "stacks", 1) || resize(object, "more_stacks", 1);
	else if (!error)
		error = resize(object, "walked_ids", 1) || resize(object, "walked_stacks", 4096);
	return error;
}

static bool is_table_of(const struct table *table, const struct stream_mapping *mapping)
{
	if (table->build_id_bytes != mapping->build_id_bytes)
		return false;
	if (table->build_id_bytes)
		return !memcmp(table->build_id, mapping->build_id, table->build_id_bytes);
	return table->inode && table->inode == mapping->inode &&
	       table->device_major == mapping->device_major &&
	       table->device_minor == mapping->device_minor;
}

static const struct table *find_table(const struct stream_mapping *mapping)
{
	for (u32 i = 0; walks.is_on && i < walks.tables_count; i++)
		if (is_table_of(&walks.tables[i], mapping))
			return &walks.tables[i];
	return NULL;
}

bool walks_has_table(const struct stream_mapping *mapping)
{
	return find_table(mapping) != NULL;
}

static int by_start(const void *left, const void *right)
{
	u64 a = ((const struct code *)left)->start, b = ((const struct code *)right)->start;

	return a < b ? -1 : a > b;
}

/* The ranges of the target's code as it is mapped now; those beyond the last have no table. */
static void make_ranges(const struct target *target, struct unwind_ranges *ranges)
{
	static struct code code[TARGET_CODE_MOST];
	u32 count = target_code(target, code);

	qsort(code, count, sizeof(*code), by_start);
	for (u32 i = 0; i < UNWIND_RANGES; i++) {
		ranges->range[i] = (struct unwind_range){.start = UNUSED, .end = UNUSED};
		if (i >= count)
			continue;
		struct unwind_range *range = &ranges->range[i];
		const struct table *table = find_table(code[i].entry);
		range->start = code[i].start;
		range->end = code[i].end;
		if (!table || !code[i].has_bias)
			continue;
		range->base = table->base + code[i].bias;
		range->index = table->index;
		range->buckets = table->buckets;
	}
}

/* Rows that were found by other ranges. Paths are filled from memos, so they come second. */
static int forget_rows(void)
{
	static const struct unwind_memo no_memo;
	static const struct unwind_paths no_paths;

	return bpf_map_update_elem(walks.memos, &(u32){0}, &no_memo, 0) ||
	       bpf_map_update_elem(walks.paths, &(u32){0}, &no_paths, 0);
}

/* Write ranges into the copy that is not in use, then use that. */
static int use_ranges(const struct unwind_ranges *ranges)
{
	struct unwind_control control = {.enabled = 1, .active = walks.control.active ^ 1};

	if (bpf_map_update_elem(walks.ranges_fd, &control.active, ranges, 0) ||
	    bpf_map_update_elem(walks.control_fd, &(u32){0}, &control, 0) || forget_rows())
		return fail(EXIT_CODE_HOST, "cannot write the unwind ranges: %s", strerror(errno));
	walks.control = control;
	walks.ranges = *ranges;
	walks.may_be_stale = true;
	return 0;
}

static int fd_of(const struct engine *engine, const char *name)
{
	return bpf_map__fd(bpf_object__find_map_by_name(engine->object, name));
}

int walks_begin(struct engine *engine, const struct target *target)
{
	static struct unwind_ranges ranges;

	if (!walks.is_on)
		return 0;
	walks.words = fd_of(engine, "unwind_words");
	walks.rules = fd_of(engine, "unwind_rules");
	walks.ranges_fd = fd_of(engine, "unwind_ranges");
	walks.memos = fd_of(engine, "unwind_memos");
	walks.paths = fd_of(engine, "unwind_paths");
	walks.ids = fd_of(engine, "walked_ids");
	walks.control_fd = bpf_map__fd(engine_data_map(engine, ".data.unwind"));
	walks.counts = mmap(NULL, WALK_COUNTS * sizeof(u64), PROT_READ, MAP_SHARED,
			    fd_of(engine, "walk_counts"), 0);
	if (walks.counts == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "cannot map the counts of walks: %s", strerror(errno));
	if (ring_map(&walks.stacks, fd_of(engine, "walked_stacks"), UNWIND_MEMORY) ||
	    take_file(true))
		return -1;
	make_ranges(target, &ranges);
	walks.looked_ns = monotonic_ns();
	return use_ranges(&ranges);
}

static bool put_stack(const void *record, u32 bytes)
{
	const struct walked_stack *stack = record;
	u32 depth = stack->count < UNWIND_FRAMES ? stack->count : UNWIND_FRAMES;

	if (bytes < offsetof(struct walked_stack, frame) + depth * sizeof(u64))
		return true;
	size_t length = sizeof(struct stream_stack) + depth * sizeof(u64);
	/* The window that follows must find room. */
	if (!output_has_room(length + sizeof(struct stream_window) +
			     2 * sizeof(struct stream_head)))
		return false;
	struct stream_stack *frame = output_put(STREAM_STACK, length);
	if (!frame)
		return false;
	*frame = (struct stream_stack){stack->id, depth};
	memcpy(frame + 1, stack->frame, depth * sizeof(u64));
	walks.sent_count++;
	/* All but the leaf are return addresses: the call is just before them. */
	for (u32 i = 0; i < depth && stack->frame[i] >> 63; i++)
		kernel_address_add(stack->frame[i] - (i > 0));
	return true;
}

bool walks_put(void)
{
	bool is_empty = true;

	if (walks.is_on)
		ring_release(&walks.stacks, ring_read(&walks.stacks, put_stack, &is_empty));
	return is_empty;
}

u64 walks_waiting_bytes(void)
{
	return walks.is_on ? ring_waiting_bytes(&walks.stacks) : 0;
}

/* The programs send every stack again: they remember a bounded number of them. */
static void forget_stacks(void)
{
	static u64 keys[BATCH];
	static u32 values[BATCH];
	u64 cursor[8];
	u32 count = BATCH;
	bool is_first = true;

	walks.sent_count = 0;
	while (!bpf_map_lookup_and_delete_batch(walks.ids, is_first ? NULL : cursor, cursor, keys,
						values, &count, NULL)) {
		is_first = false;
		count = BATCH;
	}
}

/* Whether the file was written again: its writer saw the code that was mapped since. */
static bool is_file_new(void)
{
	struct stat found;

	return !stat(walks.path, &found) &&
	       (found.st_ino != walks.as_read.st_ino || found.st_size != walks.as_read.st_size);
}

void walks_keep_up(const struct target *target)
{
	static struct unwind_ranges ranges;
	u64 now = monotonic_ns(), since = now - walks.looked_ns;

	if (!walks.is_on)
		return;
	if (walks.sent_count > STACKS_MOST)
		forget_stacks();
	if (since > LOOK_NS && walks.may_be_stale) {
		/* A walk that began by the ranges before may have written behind the change. */
		walks.may_be_stale = false;
		forget_rows();
	}
	bool is_file_due = since > LOOK_NS && is_file_new();
	if (since < LOOK_ANYWAY_NS && !is_file_due &&
	    (since < LOOK_NS || walks.counts[WALK_NO_MAPPING] == walks.unmapped_count))
		return;
	walks.looked_ns = now;
	walks.unmapped_count = walks.counts[WALK_NO_MAPPING];
	struct failure before = failure;
	if (is_file_due && take_file(true)) {
		failure = before;
		walks.as_read.st_size = 0; /* it is being written: read it again the next time */
	}
	target_send_mappings(target);
	output_commit();
	make_ranges(target, &ranges);
	if (memcmp(&ranges, &walks.ranges, sizeof(ranges)) != 0 && use_ranges(&ranges))
		failure = before; /* as before */
}

void walks_count(u64 counts[WALK_COUNTS])
{
	for (u32 i = 0; i < WALK_COUNTS; i++)
		counts[i] = walks.is_on ? walks.counts[i] : 0;
}

u64 walks_tables_bytes(void)
{
	return walks.is_on ? (u64)walks.words_count * sizeof(u32) +
				     walks.rules_count * sizeof(struct unwind_rule)
			   : 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* Stacks that the programs walk by unwind tables: their tables, and the stacks. */
#ifndef TLSTAX_WALKS_H
#define TLSTAX_WALKS_H

#include <sys/stat.h>

#include "engine.h"
#include "ring.h"
#include "tables.h"
#include "unwind.h"

/* The unwind tables of a target, and its stacks. */
struct walks {
	const char *path;    /* NULL: there are none */
	struct stat as_read; /* the file, when it was read */
	struct table tables[TABLES_MOST];
	u32 tables_count, rules_count, words_count, words_most;
	bool is_on, may_be_stale;
	struct unwind_ranges ranges;
	struct unwind_control control;
	struct ring stacks;
	const volatile u64 *counts;
	int words, rules, ranges_fd, control_fd, memos, paths, ids;
	u64 sent_count, looked_ns, unmapped_count;
};

/* Read the tables of a file before the programs are loaded; NULL: frame pointers are used. */
int walks_open(const char *path, const struct plan *plan);

/* Give the maps of the programs their sizes. */
int walks_configure(struct bpf_object *object, bool is_walking);

/* Fill the maps of the loaded programs. */
int walks_begin(struct engine *engine, const struct target *target);

/* Stacks that were sent since, as far as there is room; false: some stay in the ring. */
bool walks_put(void);

/* Of the room for stacks, what walks_put() would empty. */
u64 walks_waiting_bytes(void);

/* Between two windows: tables of code that was mapped since, room for more stacks. */
void walks_keep_up(const struct target *target);

/* How walks ended, by enum walk_count; all zeros without tables. */
void walks_count(u64 counts[WALK_COUNTS]);

/* Bytes of all tables in use, 0: stacks are not walked by tables. */
u64 walks_tables_bytes(void);

/* Whether the file of a mapping has a table. */
bool walks_has_table(const struct stream_mapping *mapping);

#endif

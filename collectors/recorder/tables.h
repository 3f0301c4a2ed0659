/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The file of unwind tables that belongs to a plan (docs/unwinding.md).
 *
 * The tables of many files in one array of words, as the programs in the kernel read it. The reader
 * believes nothing: it compares the checksum, and every number must lead to something in the file.
 */
#ifndef TLSTAX_TABLES_H
#define TLSTAX_TABLES_H

#include "build_id.h"
#include "types.h"
#include "unwind.h"

enum {
	TABLES_VERSION = 1,
	TABLES_MOST = 2048,
	TABLES_WORDS_MOST = 1 << 23,
	TABLES_RULES_MOST = 4096,
	TABLES_BYTES_MOST = 1 << 26, /* of a file that is received */
};

struct tables_head {
	char magic[8];
	u32 version;
	u32 crc32; /* of all that follows it */
	u32 tables_count;
	u32 rules_count;
	u32 words_count;
	u32 reserved;
};

/* The table of one file. */
struct table {
	u64 base;	    /* address of its first bucket, in the file's own addresses */
	u32 index;	    /* word at which its index begins */
	u32 buckets;	    /* of text */
	u32 build_id_bytes; /* 0: it has none, and is known on this host only: */
	u32 device_major, device_minor;
	u32 reserved;
	u64 inode;
	u8 build_id[BUILD_ID_MOST];
};

struct tables {
	u32 tables_count, rules_count, words_count;
	const struct table *tables;
	const struct unwind_rule *rules;
	const u32 *words;
};

/* Read the tables of a file in memory, to which the result refers. -1: failure says why not. */
int tables_parse(struct tables *tables, const u8 *bytes, size_t length);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the stack walker (unwind.bpf.h) and its reader (tests/loader/walker.py)
 * share. Rows and rules: collectors/unwinding/row_format.py; a test compares the enumerations.
 */
#ifndef TLSTAX_UNWIND_H
#define TLSTAX_UNWIND_H

enum {
	UNWIND_RANGES = 512,	   /* executable mappings; a power of two */
	UNWIND_FRAMES = 127,	   /* deepest stack; the array has room for one more */
	UNWIND_CHUNK_WORDS = 1024, /* the tables are an array of pages */
	UNWIND_BUCKET_BITS = 8,	   /* bytes of text that share an entry of the index */
	UNWIND_MEMO_BITS = 11,
	UNWIND_PATH = 8,	 /* entries of a memo that share a cache line */
	UNWIND_STACKS = 32768,	 /* stacks that were sent and need not be sent again */
	UNWIND_MEMORY = 1 << 21, /* bytes of the ring that new stacks are sent through */
};

enum unwind_row { ROW_NONE, ROW_SP, ROW_BP, ROW_RULE, ROW_END };

enum unwind_rule_kind {
	RULE_UNSUPPORTED,
	RULE_REGISTER,
	RULE_INDIRECT,
	RULE_PLT,
	RULE_SIGNAL,
	RULE_SCALED,
};

enum unwind_saved { SAVED_SAME, SAVED_AT_CFA, SAVED_AT_RBP, SAVED_LOST, SAVED_REGISTER };

/* Why a walk ended, and how often it needed a frame pointer where there was no row. */
enum walk_count {
	WALK_COMPLETE, /* at the thread's first function */
	WALK_NO_MAPPING,
	WALK_NO_ROW,
	WALK_UNSUPPORTED, /* a rule that is not followed, or a register that is not known */
	WALK_UNREADABLE,  /* the stack is not in memory, or its contents cannot be one */
	WALK_TOO_DEEP,
	WALK_BY_FRAME_POINTER,
	WALK_NOT_SENT, /* a new stack found no room in the ring */
	WALK_COUNTS,
};

struct unwind_rule {
	u8 kind;
	u8 reg; /* DWARF number; PLT: byte of an entry from which on 8 more are on the stack */
	u8 saved;
	u8 scale;
	s32 offset;
	s32 add;
	s32 saved_offset;
};

/* An executable mapping. Those not in use start behind every address. */
struct unwind_range {
	u64 start;
	u64 end;
	u64 base;    /* address of its table's first bucket */
	u32 index;   /* word at which the table's index begins */
	u32 buckets; /* 0: no table */
};

struct unwind_ranges {
	struct unwind_range range[UNWIND_RANGES];
};

struct unwind_chunk {
	u32 word[UNWIND_CHUNK_WORDS];
};

/* Rows that were found lately, by return address: its low 40 bits, then the row without address. */
struct unwind_memo {
	u64 entry[1 << UNWIND_MEMO_BITS];
};

/* The same in the order of walks, and room to begin with a line of the cache. */
struct unwind_paths {
	u64 entry[(1 << UNWIND_MEMO_BITS) + UNWIND_PATH];
};

struct unwind_control {
	u32 enabled;
	u32 active; /* the copy of the ranges that is in use */
};

/* A stack, as it is sent once: return addresses, innermost first. */
struct walked_stack {
	u32 id;
	u32 count;
	u64 frame[UNWIND_FRAMES + 1];
};

enum walker { WALKER_SAMPLE, WALKER_WAIT, WALKERS };
enum { WALKED_STACK = 1 << 29 }; /* bit of a stack id: it was walked by tables */

#endif

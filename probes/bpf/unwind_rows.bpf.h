/* SPDX-License-Identifier: GPL-2.0-only */
/* The unwind tables, and how to find the row for an address in them. */
#ifndef TLSTAX_UNWIND_ROWS_BPF_H
#define TLSTAX_UNWIND_ROWS_BPF_H

#include "account.bpf.h"
#include "unwind.h"

#define NO_RANGE 0xffffffff
#define NO_ENTRY (~0ull)
#define CFA_MOST (1 << 23)   /* bytes of stack in one frame */
#define GUESS_MOST (1 << 16) /* the same where only a frame pointer tells */
#define WINDOW_WORDS 256     /* of the stack that are read at once; a power of two */
#define WINDOW_BELOW 64	     /* bytes below the address asked for: registers are saved there */

/* The compiler must not see a bound: it would drop the mask that the verifier needs. */
#define OPAQUE(value) asm volatile("" : "+r"(value))

struct unwind_control unwind SEC(".data.unwind") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the loader sets it */
	__type(key, u32);
	__type(value, struct unwind_chunk);
} unwind_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct unwind_ranges);
} unwind_ranges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets it */
	__type(key, u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WALK_COUNTS);
	__type(key, u32);
	__type(value, u64);
} walk_counts SEC(".maps");

/* Of 16 KB, so that the kernel keeps it in one piece and a look into it costs no page walk. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_memo);
} unwind_memos SEC(".maps");

/* The same rows in the order of walks: callers of one function are in one cache line, mostly. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_paths);
} unwind_paths SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_array___line {
	char value[0];
};

#pragma clang attribute pop

/* Entries of an array's value before the first that begins a line of the cache. */
static __always_inline u64 entries_to_line(void)
{
	if (!bpf_core_field_exists(struct bpf_array___line, value))
		return 0;
	return -(u64)bpf_core_field_offset(struct bpf_array___line, value) / sizeof(u64) %
	       UNWIND_PATH;
}

enum { RETURN_BESIDE_FRAME = 8 }; /* arm64: the return address is behind the saved x29 */

struct walk {
	u64 pc, sp, bp;
	u64 bp_at;     /* where the frame pointer was saved; 0: it is in `bp` */
	u64 window_at; /* address of `window`; 0: it has not been read */
	u64 word;      /* what read_word() found */
	u64 path;      /* index of the entry of `unwind_paths` that is likely next */
	u64 hash;
	u64 trampoline; /* where functions with a return probe return to; 0: there is none */
	u64 instance;	/* struct return_instance of the innermost of them */
	u32 range;	/* of the last address: the next one is often in the same file */
	u32 steps;
	u32 exact;   /* pc is the next instruction, not behind a call */
	u32 guessed; /* pc was found by a frame pointer */
	u32 guesses;
	u32 ended;		  /* why, enum walk_count */
	u64 lr;			  /* arm64: the register with the return address, if `exact` */
	u64 reg[DWARF_REGISTERS]; /* by DWARF number, of the interrupted function */
	struct walked_stack stack;
	u64 window[WINDOW_WORDS]; /* a part of the thread's stack; never leaves the kernel */
};

/* Of what a walk knows, all but the registers; the rest may be that of another stack. */
static __always_inline void reset_walk(struct walk *walk)
{
	walk->hash = walk->path = walk->bp_at = walk->window_at = 0;
	walk->steps = walk->guessed = walk->guesses = 0;
	walk->exact = 1;
	walk->stack.count = 0;
	walk->trampoline = walk->instance = 0;
}

__noinline u32 word_at(u32 at)
{
	u32 key = at / UNWIND_CHUNK_WORDS;
	struct unwind_chunk *chunk = bpf_map_lookup_elem(&unwind_words, &key);
	return chunk ? chunk->word[at % UNWIND_CHUNK_WORDS] : 0;
}

/* 1 if a <= b, as a number: a branch here would double the verifier's work at each step. */
static __always_inline u64 not_above(u64 a, u64 b)
{
	u64 result = (a - b - 1) >> 63;
	OPAQUE(result);
	return result;
}

/* The mapping that contains an address, and in walk->range its number. */
static __always_inline struct unwind_range *find_range(struct walk *walk, u64 pc)
{
	u32 active = unwind.active & 1;
	struct unwind_ranges *all = bpf_map_lookup_elem(&unwind_ranges, &active);
	if (!all)
		return NULL;
	u32 last = walk->range & (UNWIND_RANGES - 1);
	if (pc >= all->range[last].start && pc < all->range[last].end)
		return &all->range[last];
	u64 behind = 0;
#pragma unroll
	for (u32 step = UNWIND_RANGES / 2; step; step /= 2) {
		u64 at = behind + step - 1;
		OPAQUE(at);
		at &= UNWIND_RANGES - 1;
		behind += not_above(all->range[at].start, pc) * step;
	}
	u64 at = behind - 1;
	OPAQUE(at);
	at &= UNWIND_RANGES - 1;
	if (pc < all->range[at].start || pc >= all->range[at].end)
		return NULL;
	walk->range = at;
	return &all->range[at];
}

static __always_inline int read_stack(void *value, u32 size, u64 address)
{
	return bpf_probe_read_user(value, size, (void *)address);
}

/*
 * A word of the thread's stack, to walk->word. Reading user memory has a fixed price, many times
 * that of some hundred bytes more: one read serves several frames.
 */
__noinline int read_word(struct walk *walk, u64 address)
{
	if (!walk)
		return -1;
	u64 at = address - walk->window_at;
	if (!walk->window_at || at > sizeof(walk->window) - sizeof(u64)) {
		at = WINDOW_BELOW;
		walk->window_at = address - at;
		if (read_stack(walk->window, sizeof(walk->window), walk->window_at)) {
			/* It reaches into memory that is not there: the part in one page. */
			at = address % sizeof(walk->window);
			walk->window_at = address - at;
			if (read_stack(walk->window, sizeof(walk->window), walk->window_at)) {
				/* arm64 with memory tags forbids 16 bytes at a time. */
				walk->window_at = 0;
				return read_stack(&walk->word, sizeof(u64), address);
			}
		}
	}
	if (at % sizeof(u64))
		return read_stack(&walk->word, sizeof(u64), address);
	at /= sizeof(u64);
	OPAQUE(at);
	walk->word = walk->window[at & (WINDOW_WORDS - 1)];
	return 0;
}

/* Most rows need no frame pointer: one that was saved is read when a row asks for it. */
static __always_inline int read_frame_pointer(struct walk *walk)
{
	if (!walk->bp_at)
		return 0;
	if (read_word(walk, walk->bp_at))
		return -1;
	walk->bp = walk->word;
	walk->bp_at = 0;
	return 0;
}

/* The row that applies at an address; NO_RANGE if nothing is mapped there. */
__noinline u32 find_row(struct walk *walk, u64 pc)
{
	if (!walk)
		return NO_RANGE;
	struct unwind_range *range = find_range(walk, pc);
	if (!range)
		return NO_RANGE;
	u64 offset = pc - range->base;
	u64 bucket = offset >> UNWIND_BUCKET_BITS;
	u64 low = offset & ((1 << UNWIND_BUCKET_BITS) - 1);
	if (bucket >= range->buckets)
		return ROW_NONE;
	u32 first = word_at(range->index + bucket);
	u64 count = word_at(range->index + bucket + 1) - first, found = 0;
#pragma unroll
	for (u32 step = 1 << (UNWIND_BUCKET_BITS - 1); step; step /= 2) {
		if (count < step) /* once false, it stays so: no more paths for the verifier */
			continue;
		u64 at = found + step;
		u64 inside = not_above(at, count);
		u64 row = word_at(first + at - 1);
		found += (inside & not_above(row & 0xff, low)) * step;
	}
	return word_at(first + found - 1);
}

/* What is known of a return address: its tag and row; NO_ENTRY: nothing is mapped there. */
__noinline u64 recall_row(struct walk *walk, u64 slot)
{
	u32 key = 0;
	struct unwind_memo *memo = bpf_map_lookup_elem(&unwind_memos, &key);

	if (!walk || !memo)
		return NO_ENTRY;
	OPAQUE(slot);
	u64 *entry = &memo->entry[slot & ((1 << UNWIND_MEMO_BITS) - 1)];
	u64 tag = walk->pc << 24;
	u64 known = *entry;
	if (known >> 24 == tag >> 24 && known)
		return known;
	u32 row = find_row(walk, walk->pc - 1);
	if (row == NO_RANGE)
		return NO_ENTRY;
	known = tag | row >> 8;
	*entry = known;
	return known;
}

/*
 * The row for a return address. Most were looked for before, and most by a walk that went the same
 * way: a line of `unwind_paths` holds what was found one after the other. A line begins at
 * addresses that are chosen by their hash, so that ways which meet share the lines that follow.
 */
static __always_inline u32 find_row_again(struct walk *walk)
{
	u64 hash = walk->pc * 0x9e3779b97f4a7c15ull;
	u32 key = 0;
	struct unwind_paths *paths = bpf_map_lookup_elem(&unwind_paths, &key);

	if (!paths)
		return find_row(walk, walk->pc - 1);
	u64 at = walk->path;
	if (at % UNWIND_PATH == 0 || hash >> 61 == 0)
		at = (hash >> (61 - UNWIND_MEMO_BITS)) * UNWIND_PATH;
	OPAQUE(at);
	at &= (1 << UNWIND_MEMO_BITS) - 1;
	u64 *entry = &paths->entry[at + entries_to_line()];
	u64 known = *entry;
	walk->path = at + 1;
	if (known >> 24 != walk->pc << 24 >> 24 || !known) {
		known = recall_row(walk, hash >> (64 - UNWIND_MEMO_BITS));
		if (known == NO_ENTRY)
			return NO_RANGE;
		*entry = known;
	}
	return (u32)known << 8;
}

#endif

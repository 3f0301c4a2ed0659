/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs of functions.bpf.c, the recorder (collectors/recorder/function_probes.c) and
 * the reader of its stream share. All times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef TLSTAX_FUNCTIONS_H
#define TLSTAX_FUNCTIONS_H

enum {
	MAX_FUNCTIONS = 64,
	CALIBRATION = MAX_FUNCTIONS - 1, /* number of the empty function */
	MAX_CALLS = 16,
	SIZE_CLASSES = 33,
	FUNCTION_SHARDS = 8,
};

/* Where the number of bytes of a call is read. */
enum size_source {
	SIZE_NONE,
	SIZE_CONSTANT,
	SIZE_ARGUMENT,
	SIZE_RETURNED,
};

/*
 * Attach cookie: function 0-7, size_source 8-11, timed 12, 64-bit number 13, the constant 16-31;
 * 32-47 and 48-51 as in ledger.h: how far the stack pointer is below that of the function's first
 * instruction (an exit: below that of its caller), in words, and the register that is read.
 */
#define COOKIE_FUNCTION(cookie) ((cookie) & (MAX_FUNCTIONS - 1))
#define COOKIE_SOURCE(cookie) (((cookie) >> 8) & 0xf)
#define COOKIE_TIMED(cookie) ((cookie) >> 12 & 1)
#define COOKIE_WIDE(cookie) ((cookie) >> 13 & 1)
#define COOKIE_CONSTANT(cookie) (((cookie) >> 16) & 0xffff)

enum function_loss {
	FUNCTION_LOSS_MAP_FULL,
	FUNCTION_LOSS_STACK_OVERFLOW,
	FUNCTION_LOSS_HEALED,
	FUNCTION_LOSS_UNMATCHED_EXIT,
	FUNCTION_LOSS_STORAGE_FAILED,
	FUNCTION_LOSS_RECURSION_MISSED, /* read from the kernel by the recorder */
	FUNCTION_LOSSES = 8,
};

/* A timed call that has not returned yet. */
struct call {
	u64 sp; /* user stack pointer at entry: a call below the current one has ended */
	u64 start_ns;
	u64 away_ns;   /* of the thread at entry */
	u64 nested_ns; /* in probed functions that it called, directly */
	u64 size_bytes;
	u64 traps_ns;	     /* calibrated cost of the probes inside of it, at any depth */
	u64 direct_traps_ns; /* of those that it called directly, what is not in nested_ns */
	u32 phase;
	u16 function;
	u16 jumped; /* it left by a jump into a function that has returned: so has this one */
};

struct thread_calls {
	u64 away_ns;  /* off the CPU with a call open */
	u64 left_ns;  /* since when; 0: it is running */
	u64 came_ns;  /* when it was last switched in */
	u64 sched_ns; /* its CPU time at that time, by the scheduler */
	u32 depth;
	u32 reserved;
	struct call calls[MAX_CALLS];
};

struct function_key {
	u32 function;
	u32 phase;
	u32 size_class; /* 0: no bytes; n: from 2^(n-1) to 2^n - 1 */
	u32 shard;
};

/* Calls of a function and their time. */
struct function_sum {
	u64 call_count;
	u64 size_bytes;
	u64 timed_count; /* calls that were timed, and what they worked on */
	u64 timed_bytes;
	u64 time_ns;	     /* of the timed calls, off-CPU time taken out */
	u64 nested_ns;	     /* of it, in probed functions that they called directly */
	u64 traps_ns;	     /* calibrated cost of the probes in them, at any depth */
	u64 direct_traps_ns; /* of the probes of those that they called, what is not in nested_ns */
};

struct function_bucket {
	u16 function;
	u16 size_class;
	u32 bucket;
};

/* Written by the recorder before the probes are attached, from its calibration. */
struct function_cost {
	u32 pair_ns;   /* what the probes of a call cost its caller; an entry alone, if not timed */
	u32 inside_ns; /* of that, what lies between the two clocks */
};

struct function_config {
	s32 tgid;
	s32 own_tgid; /* whose empty function is called to calibrate */
};

#endif

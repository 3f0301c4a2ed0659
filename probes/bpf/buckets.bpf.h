/* SPDX-License-Identifier: GPL-2.0-only */
/* The buckets of every histogram. */
#ifndef TLSTAX_BUCKETS_BPF_H
#define TLSTAX_BUCKETS_BPF_H

#include "ktypes.h"

#include "ledger.h"

/* `step` if a bit from there on is set, else 0. A branch would double what is verified. */
static __always_inline u64 high_bits(u64 value, u32 step)
{
	u64 high = value >> step;
	asm volatile("" : "+r"(high)); /* or the compiler makes a branch of it */
	return (-high >> 63) * step;
}

static __always_inline u32 log2_floor(u64 value)
{
	u64 bits = 0;
	for (u32 step = 32; step > 1; step /= 2) {
		u64 more = high_bits(value, step);
		value >>= more;
		bits += more;
	}
	return (u32)(bits + (value >> 1));
}

/* Inverse: bucket_bounds() in collectors/recording/programs/ledger_layout.py. */
static __always_inline u32 latency_bucket(u64 value)
{
	if (value < (1 << LATENCY_SUBBITS))
		return (u32)value;
	u32 exponent = log2_floor(value);
	u32 fraction = (value >> (exponent - LATENCY_SUBBITS)) & ((1 << LATENCY_SUBBITS) - 1);
	u32 bucket = ((exponent - LATENCY_SUBBITS + 1) << LATENCY_SUBBITS) + fraction;
	return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

#endif

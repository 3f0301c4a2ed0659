/* SPDX-License-Identifier: GPL-2.0-only */
/* The buckets of every histogram. */
#ifndef TLSTAX_BUCKETS_BPF_H
#define TLSTAX_BUCKETS_BPF_H

#include "ktypes.h"

#include "ledger.h"

static __always_inline u32 log2_floor(u64 value)
{
	u32 bits = 0;
	if (value >> 32) {
		value >>= 32;
		bits += 32;
	}
	if (value >> 16) {
		value >>= 16;
		bits += 16;
	}
	if (value >> 8) {
		value >>= 8;
		bits += 8;
	}
	if (value >> 4) {
		value >>= 4;
		bits += 4;
	}
	if (value >> 2) {
		value >>= 2;
		bits += 2;
	}
	return bits + (u32)(value >> 1);
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

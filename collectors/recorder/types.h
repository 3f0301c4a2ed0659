/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's names of types, which ledger.h uses, and the clocks. */
#ifndef TLSTAX_TYPES_H
#define TLSTAX_TYPES_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline u64 clock_ns(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		return 0;
	return (u64)now.tv_sec * NS_PER_S + (u64)now.tv_nsec;
}

static inline u64 monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The CPU clock of a process with its ended threads (clock_getcpuclockid(3)). */
static inline clockid_t process_clock(int pid)
{
	return (clockid_t)(~(unsigned int)pid << 3 | 2);
}

#endif

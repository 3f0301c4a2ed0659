// SPDX-License-Identifier: GPL-2.0-only
/* The patience of the programs in the kernel, outside of it: tests/unit/recorder/test_patience.py.
 */
#define TLSTAX_KTYPES_H /* the kernel's are only for its programs */
#include "types.h"

#include <bpf/bpf_helpers.h>

static u64 boot_ns;

static u64 boot_clock(void)
{
	return boot_ns;
}

#undef SEC
#define SEC(name)
#define bpf_ktime_get_boot_ns boot_clock
#include "heartbeat.bpf.h"

int abandoned(u64 beat_ns, u64 ahead_ns, u64 now_ns, u64 now_boot_ns)
{
	heartbeat = (struct heartbeat){.time_ns = beat_ns, .ahead_ns = ahead_ns};
	boot_ns = now_boot_ns;
	return is_abandoned(now_ns);
}

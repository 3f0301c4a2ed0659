/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether the recorder still runs: one memory for all objects of a recording. */
#ifndef TLSTAX_HEARTBEAT_BPF_H
#define TLSTAX_HEARTBEAT_BPF_H

#include "ktypes.h"

#include <bpf/bpf_helpers.h>

#include "heartbeat.h"

struct heartbeat heartbeat SEC(".data.heartbeat") = {};

/* Whether the recorder did not run for a while: it is frozen, stopped or starved. */
static __always_inline bool is_abandoned(u64 now)
{
	u64 beat_ns = heartbeat.time_ns;
	s64 since_ns = (s64)(now - beat_ns);
	if (!beat_ns || since_ns <= HEARTBEAT_MOST_NS)
		return false;
	/* Around a suspend of the host everything is frozen until its devices have followed. */
	s64 slept_ns = (s64)(bpf_ktime_get_boot_ns() - now - heartbeat.ahead_ns);
	return slept_ns < SUSPEND_LEAST_NS || since_ns > SUSPEND_MOST_NS;
}

#endif

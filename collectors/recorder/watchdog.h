/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A second process that kills the recorder when it hangs or is stopped: the kernel then removes
 * every probe. It holds no descriptor of a probe itself. One that only waits for a CPU is given 20
 * s: it needs a CPU to be killed, too.
 */
#ifndef TLSTAX_WATCHDOG_H
#define TLSTAX_WATCHDOG_H

#include <sys/types.h>

#include "types.h"

struct heartbeat;

/* Start it: before threads, and before anything is attached. `output_fd` is closed in it.
 * `is_serving`: the parent is a shell, or sudo, which has to go on when a stopped recorder ends. */
int watchdog_start(int output_fd, bool is_serving);

/* The recorder is alive. Call it at least once a second while something is attached. */
void watchdog_beat(void);

/* Beat there, too: the programs in the kernel return at once when the beat is 2 s old. */
void watchdog_share(volatile struct heartbeat *heartbeat);

/* The same, because it got no CPU: it was neither stopped nor stuck. */
bool watchdog_starved(void);

/* Let the programs in the kernel run again: nothing of before is attached any more. */
void watchdog_resume(void);

/* Whether a heartbeat is expected: while probes are attached. */
void watchdog_arm(bool on);

/* Whether there was no heartbeat for so long that the programs in the kernel were idle. */
bool watchdog_missed(void);

/* Fail if the watchdog has ended: without it a stopped recorder would stay attached. */
int watchdog_check(void);

/* Its process; 0: none. */
pid_t watchdog_pid(void);

/* CPU time that it has used. */
u64 watchdog_cpu_ns(void);

void watchdog_stop(void);

#endif

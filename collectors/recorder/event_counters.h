/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs of 17 instructions that count events for each CPU: those of a process, and of others.
 *
 * They follow nothing, so they cost what an event costs and no more. A map has two cells for each
 * kind of event: of all other processes, of the process.
 */
#ifndef TLSTAX_EVENT_COUNTERS_H
#define TLSTAX_EVENT_COUNTERS_H

#include "types.h"

/* A map for so many kinds of events; an error below 0. */
int event_map(u32 kinds);

/* Count a tracepoint; the link, or an error below 0. The current thread is the one that counts. */
int count_tracepoint(int map, u32 kind, int pid, const char *tracepoint);

/* Count returns of a function of the kernel, by its number in the kernel's types; the same. */
int count_returns(int map, u32 kind, int pid, u32 function);

/* Events of the process, or of all others, so far. */
u64 events_counted(int map, u32 kind, bool of_others);

#endif

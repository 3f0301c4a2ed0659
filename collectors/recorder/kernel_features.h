/* SPDX-License-Identifier: GPL-2.0-only */
/* What this kernel can do, found by trying it or in its types, never by its version. */
#ifndef TLSTAX_KERNEL_FEATURES_H
#define TLSTAX_KERNEL_FEATURES_H

#include "socket_events.h"

struct features {
	bool has_multi;	       /* uprobe_multi links that see every thread of a process */
	bool switch_has_state; /* sched_switch passes the state of the thread that leaves */
	enum socket_source sockets;
};

struct btf;

/* The kernel's types, 20 MB that are read once; NULL: it has none. */
const struct btf *kernel_types(void);

void kernel_types_forget(void);

/* Fails where the kernel has no types (BTF). */
int features_find(struct features *features);

/* Whether uprobe_multi links see every thread of a process. */
bool features_try_multi(void);

/* A program for uprobes that counts its runs in element 0 of an array; `attach_type` is
 * ATTACH_UPROBE_MULTI, or 0 for perf events. Its descriptor, or an error below 0. */
int load_counter(int map, u32 attach_type);

/* A uprobe_multi link; its descriptor, or an error below 0. */
int open_multi_link(int program, const char *path, const u64 *offsets, const u64 *cookies,
		    u32 count, int pid, bool is_return);

/* A uprobe as a perf event, for kernels without such links; the same. */
int open_event_link(int program, const char *path, u64 offset, u64 cookie, int pid, bool is_return);

enum { ATTACH_UPROBE_MULTI = 48 }; /* linux/bpf.h since 6.6 */

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The account of each thread. The ledger fills it; functions.bpf.c looks up the thread's phase. */
#ifndef TLSTAX_SLOTS_BPF_H
#define TLSTAX_SLOTS_BPF_H

#include "ktypes.h"

#include <bpf/bpf_helpers.h>

#include "ledger.h"

struct slot_ref {
	u32 index_plus_one;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct thread_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct slot_ref);
} slot_of_task SEC(".maps");

/* The task's slot, or NULL. */
static __always_inline struct thread_slot *find_slot(struct task_struct *task)
{
	struct slot_ref *ref = bpf_task_storage_get(&slot_of_task, task, NULL, 0);
	if (!ref || !ref->index_plus_one)
		return NULL;
	u32 index = ref->index_plus_one - 1;
	return bpf_map_lookup_elem(&slots, &index);
}

#endif

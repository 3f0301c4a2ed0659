/* SPDX-License-Identifier: GPL-2.0-only */
/* The account of each thread. The ledger fills it; functions.bpf.c looks up the thread's phase. */
#ifndef TLSTAX_SLOTS_BPF_H
#define TLSTAX_SLOTS_BPF_H

#include "ktypes.h"

#include <bpf/bpf_helpers.h>

#include "ledger.h"

/*
 * Where a thread's account is: the index of its slot plus one, 0 before anybody asked for one, or a
 * mark. Marks lie beyond every index, so that a lookup finds nothing and needs no test of its own.
 */
struct slot_ref {
	u32 index_plus_one;
};

#define MARK_MAKING 0xffffffff	/* its account is being made */
#define MARK_NO_ROOM 0xfffffffe /* the thread has none: all slots were in use */
#define MARK_ENDED 0xfffffffd	/* the thread has ended, and its slot may be another's */

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

/* The index of the task's slot, beyond all of them if it has none. */
static __always_inline u32 slot_index(struct task_struct *task)
{
	struct slot_ref *ref = bpf_task_storage_get(&slot_of_task, task, NULL, 0);
	return ref ? ref->index_plus_one - 1 : MARK_NO_ROOM;
}

/* The task's slot, or NULL. Never makes one: see threads.bpf.h. */
static __always_inline struct thread_slot *find_slot(struct task_struct *task)
{
	u32 index = slot_index(task);
	return bpf_map_lookup_elem(&slots, &index);
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* The accounts of threads as the programs keep them: a whole copy of one, and room for others. */
#include <bpf/bpf.h>
#include <stddef.h>
#include <string.h>

#include "engine.h"
#include "totals.h"

enum { ATTEMPTS = 4 };

/* The time of the last charge is the same afterwards. */
bool account_copy(const struct thread_slot *slot, struct thread_slot *copy)
{
	for (int i = 0; i < ATTEMPTS; i++) {
		memcpy(copy, slot, offsetof(struct thread_slot, frames));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&slot->last_ns, __ATOMIC_ACQUIRE) == copy->last_ns)
			return true;
	}
	return false;
}

void account_recycle(struct engine *engine, u32 index)
{
	static const struct thread_slot empty;

	bpf_map_update_elem(engine->slots_fd, &index, &empty, 0);
	u64 recycled = engine->free_slots[0];
	engine->free_slots[1 + recycled % engine->settings.slots] = index;
	/* Last: now the programs may take it. */
	__atomic_store_n(&engine->free_slots[0], recycled + 1, __ATOMIC_RELEASE);
}

void accounts_recycle_unsent(struct engine *engine)
{
	struct lifecycle now;

	engine_read_lifecycle(engine, &now);
	for (u32 i = 0; i < now.fresh_count && i < engine->settings.slots; i++) {
		const struct thread_slot *slot =
			(const void *)(engine->slots + (size_t)i * sizeof(struct thread_slot));
		if (__atomic_load_n(&slot->status, __ATOMIC_ACQUIRE) == THREAD_EXITED)
			account_recycle(engine, i);
	}
}

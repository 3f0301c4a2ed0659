// SPDX-License-Identifier: GPL-2.0-only
/* The accounts of threads. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "cells.h"
#include "failure.h"
#include "output.h"
#include "session.h"
#include "stream.h"
#include "totals.h"
#include "watchdog.h"

#define accounts (session->accounts)

#define NOT_LOOKED (~0ULL)

enum { ATTEMPTS = 4, LOOKS_MOST = 3, BEAT_SLOTS = 256 };
enum { AHEAD = 8, CELLS_AHEAD = 3, LINE_BYTES = 64 };

/* What was sent of a slot. */
struct sent_account {
	enum { SENT_NOTHING, SENT_IN_VAIN, SENT } was; /* in vain: the last time had no room */
	u32 window;				       /* in which it was put last */
	u32 looks_count;
	bool is_ended; /* the slot is given back after the next commit */
	struct stream_slot slot;
	struct sent_cells sent;
};

int totals_prepare(struct engine *engine, const struct plan *plan, const struct target *target)
{
	accounts.window = 1;
	accounts.looked_count = NOT_LOOKED;
	accounts.slots_count = engine->settings.slots;
	accounts.sent =
		mmap(NULL, sizeof(*accounts.sent) * accounts.slots_count, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (accounts.sent == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "no memory for %u threads: %s", accounts.slots_count,
			    strerror(errno));
	return roles_prepare(plan, target);
}

static void describe(const struct thread_slot *copy, u32 index, struct stream_slot *slot)
{
	*slot = (struct stream_slot){
		.index = index,
		.tid = copy->tid,
		.status = copy->status,
		.role = copy->role,
		.state = copy->state,
		.owner = copy->owner,
		.healed_count = copy->healed_count,
		.thread_start_ns = copy->thread_start_ns,
		.first_ns = copy->first_ns,
		.last_ns = copy->last_ns,
		.uncertain_ns = copy->uncertain_ns,
		.steal_ns = copy->steal_ns,
		.handed_ns = copy->handed_ns,
		.first_counts = copy->first_counts,
		.counts = copy->counts,
	};
	memcpy(slot->comm, copy->comm, sizeof(slot->comm));
}

/* Whether all is the same but what a struct stream_change tells. */
static bool is_rest_same(const struct stream_slot *old, const struct stream_slot *new)
{
	struct stream_slot as_before = *new;

	as_before.state = old->state;
	as_before.owner = old->owner;
	as_before.last_ns = old->last_ns;
	as_before.steal_ns = old->steal_ns;
	as_before.handed_ns = old->handed_ns;
	as_before.cells_count = old->cells_count;
	return !memcmp(old, &as_before, sizeof(as_before));
}

/* Whether nothing changed but the time at which the kernel's counts were read. */
static bool is_same(const struct stream_slot *old, const struct stream_slot *new)
{
	struct stream_slot with_time = *new;

	with_time.counts.time_ns = old->counts.time_ns;
	with_time.cells_count = old->cells_count;
	return old->counts.time_ns && !memcmp(old, &with_time, sizeof(with_time));
}

static void look_at_stack(struct sent_account *entry, const struct thread_slot *copy,
			  struct stream_slot *slot)
{
	if (memcmp(entry->slot.comm, slot->comm, sizeof(slot->comm)) != 0)
		entry->looks_count = 0;
	else
		slot->span = entry->slot.span;
	if (copy->role != ROLE_BACKGROUND || !copy->stack_base || slot->span ||
	    copy->status == THREAD_EXITED || entry->looks_count == LOOKS_MOST)
		return;
	entry->looks_count++;
	slot->span = role_span(copy->stack_base);
}

static bool put_whole(const struct stream_slot *slot, const struct changed_cells *changed)
{
	struct stream_slot *frame = output_put(
		STREAM_SLOT, sizeof(*slot) + slot->cells_count * sizeof(struct stream_cell));

	if (!frame)
		return false;
	*frame = *slot;
	struct stream_cell *cells = (void *)(frame + 1);
	for (u32 i = 0; i < changed->count; i++)
		cells[i] = (struct stream_cell){changed->index[i], changed->value[i]};
	return true;
}

/* Fewer bytes for an account that was sent before: writing them is a good part of a window's cost.
 */
static bool put_change(const struct stream_slot *slot, const struct changed_cells *changed)
{
	struct stream_change *frame =
		output_put(STREAM_CHANGE, sizeof(*frame) + slot->cells_count * sizeof(u64));

	if (!frame)
		return false;
	*frame = (struct stream_change){
		.index = slot->index,
		.state = (u8)slot->state,
		.owner = (u8)slot->owner,
		.cells_count = (u16)slot->cells_count,
		.last_ns = slot->last_ns,
		.steal_ns = slot->steal_ns,
		.handed_ns = slot->handed_ns,
	};
	u64 *values = (void *)(frame + 1);
	for (u32 i = 0; i < changed->count; i++)
		frame->cells[changed->index[i] / 64] |= 1ULL << changed->index[i] % 64;
	memcpy(values, changed->value, changed->count * sizeof(u64));
	return true;
}

/*
 * An account but for its cells, and which of these changed. The time of the last charge is the same
 * afterwards; false: never in some attempts.
 */
static bool read_account(struct sent_account *entry, const struct thread_slot *place,
			 struct thread_slot *head, struct changed_cells *changed)
{
	for (int i = 0; i < ATTEMPTS; i++) {
		memcpy(head, place, offsetof(struct thread_slot, ns));
		bool is_other = entry->slot.tid != head->tid ||
				entry->slot.thread_start_ns != head->thread_start_ns;
		if (entry->was == SENT_NOTHING || is_other) {
			memset(entry, 0, sizeof(*entry));
			entry->slot.tid = head->tid;
		}
		cells_compare(&place->ns[0][0], &entry->sent, entry->was != SENT_IN_VAIN, changed);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&place->last_ns, __ATOMIC_ACQUIRE) == head->last_ns)
			return true;
	}
	return false;
}

static bool put_slot(struct sent_account *entry, const struct thread_slot *head,
		     const struct changed_cells *changed, struct stream_slot *slot)
{
	look_at_stack(entry, head, slot);
	slot->cells_count = changed->count;
	bool is_known = entry->was == SENT;
	if (is_known && !slot->cells_count && is_same(&entry->slot, slot))
		return true;
	bool is_put = is_known && is_rest_same(&entry->slot, slot) ? put_change(slot, changed)
								   : put_whole(slot, changed);
	if (!is_put)
		return false;
	cells_sent(&entry->sent, changed);
	for (u32 i = changed->count; i && changed->index[i - 1] >= PHASES * STATES; i--)
		accounts.counted_phases |= 1U << (changed->index[i - 1] - PHASES * STATES);
	entry->slot = *slot;
	entry->was = SENT;
	entry->window = accounts.window;
	if (slot->status == THREAD_EXITED) {
		entry->is_ended = true;
		accounts.ended_count++;
	}
	return true;
}

/* Whether a thread did nothing since its account was sent. Few of its cache lines are touched. */
static bool is_resting(const struct sent_account *entry, const struct thread_slot *place)
{
	const struct stream_slot *slot = &entry->slot;

	return entry->was == SENT && slot->status == THREAD_LIVE && place->status == THREAD_LIVE &&
	       place->last_ns == slot->last_ns && place->tid == slot->tid &&
	       place->thread_start_ns == slot->thread_start_ns && place->state == slot->state &&
	       place->owner == slot->owner &&
	       place->counts.switch_count == slot->counts.switch_count &&
	       place->counts.cpu_ns == slot->counts.cpu_ns &&
	       place->counts.wait_ns == slot->counts.wait_ns &&
	       (entry->looks_count == LOOKS_MOST || slot->role != ROLE_BACKGROUND || slot->span);
}

u64 accounts_ended_count(const struct engine *engine)
{
	u64 ended_count = engine_ended_count(engine);

	return accounts.looked_count == NOT_LOOKED ? ended_count
						   : ended_count - accounts.looked_count;
}

/*
 * With many threads most of the time is waiting for memory. So what tells whether an account has
 * changed is fetched some accounts early, and later the cells of one that has.
 */
static void fetch_early(const struct thread_slot *place, const struct sent_account *entry,
			const struct sent_account *end)
{
	if (entry + AHEAD < end) {
		__builtin_prefetch(&place[AHEAD].status);
		__builtin_prefetch(&place[AHEAD].state);
		__builtin_prefetch(&place[AHEAD].counts);
		for (const u8 *at = (const void *)&entry[AHEAD];
		     at < (const u8 *)entry[AHEAD].sent.cells; at += LINE_BYTES)
			__builtin_prefetch(at);
	}
	place += CELLS_AHEAD;
	entry += CELLS_AHEAD;
	if (entry >= end || place->last_ns == entry->slot.last_ns)
		return;
	cells_fetch(place, &entry->sent);
}

/*
 * Whether nobody asks for the account of a thread: it began and ended while there was no ledger.
 * Thousands of them a second would cost who reads them more than all else.
 */
static bool is_unasked(const struct sent_account *entry, const struct thread_slot *place)
{
	bool was_sent = entry->was != SENT_NOTHING && entry->slot.tid == place->tid &&
			entry->slot.thread_start_ns == place->thread_start_ns;

	return !was_sent && place->status == THREAD_EXITED && !has_ledger(session->schedule.level);
}

/* What it counted is in the latencies all the same. */
static void leave_out(struct sent_account *entry, const struct thread_slot *place)
{
	for (u32 phase = 0; phase < PHASES; phase++)
		if (place->count[phase])
			accounts.counted_phases |= 1U << phase;
	memset(entry, 0, sizeof(*entry));
	entry->was = SENT;
	entry->window = accounts.window;
	entry->is_ended = true;
	accounts.ended_count++;
}

bool accounts_put(struct engine *engine, bool ended_only)
{
	static struct thread_slot head;
	static struct changed_cells changed;
	struct lifecycle now;
	struct stream_slot slot;
	u64 ended_count = engine_ended_count(engine);

	if (ended_only && ended_count == accounts.looked_count)
		return true;
	engine_read_lifecycle(engine, &now);
	u32 count = now.fresh_count < accounts.slots_count ? (u32)now.fresh_count
							   : accounts.slots_count;
	for (u32 i = 0; i < count; i++) {
		const struct thread_slot *place =
			(const void *)(engine->slots + (size_t)i * sizeof(struct thread_slot));
		u32 status = __atomic_load_n(&place->status, __ATOMIC_ACQUIRE);
		if (!ended_only)
			fetch_early(place, &accounts.sent[i], accounts.sent + count);
		if (i % BEAT_SLOTS == 0) /* thousands of threads on a slow CPU take seconds */
			watchdog_beat();
		if (status == THREAD_FREE || (ended_only && status != THREAD_EXITED))
			continue;
		if (is_resting(&accounts.sent[i], place))
			continue;
		if (is_unasked(&accounts.sent[i], place)) {
			leave_out(&accounts.sent[i], place);
			continue;
		}
		accounts.torn_count += !read_account(&accounts.sent[i], place, &head, &changed);
		describe(&head, i, &slot);
		if (!put_slot(&accounts.sent[i], &head, &changed, &slot))
			return false;
	}
	accounts.looked_count = ended_count;
	return true;
}

u32 accounts_recycle(struct engine *engine)
{
	u32 count = accounts.ended_count;

	accounts.window++;
	for (u32 i = 0; i < accounts.slots_count && accounts.ended_count; i++) {
		if (accounts.sent[i].was == SENT_NOTHING || !accounts.sent[i].is_ended)
			continue;
		accounts.ended_count--;
		memset(&accounts.sent[i], 0, sizeof(accounts.sent[i]));
		account_recycle(engine, i);
	}
	return count;
}

void accounts_forget(void)
{
	accounts.looked_count = NOT_LOOKED;
	for (u32 i = 0; i < accounts.slots_count; i++) {
		struct sent_account *entry = &accounts.sent[i];
		if (entry->was != SENT || entry->window != accounts.window)
			continue;
		entry->was = SENT_IN_VAIN;
		accounts.ended_count -= entry->is_ended;
		entry->is_ended = false;
	}
}

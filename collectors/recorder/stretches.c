// SPDX-License-Identifier: GPL-2.0-only
#include "stretches.h"

#include <bpf/bpf.h>
#include <string.h>

#include "call_price.h"
#include "session.h"
#include "totals.h"
#include "watchdog.h"

#define stretches (session->stretches)

#define JITTER 0.5
#define NEVER_NS (~0ULL)
enum { WALK_NONE = 1 << 20 }; /* stacks of one wait in so many */

static const u32 phases[PARTS] = {PHASE_RECORD_READ, PHASE_COMMAND, PHASE_RECORD_WRITE};

/* Whether the first engine probes an instruction, which traps there once for both. */
static bool is_shared(const struct plan *plan, const struct plan_site *site)
{
	for (u32 i = 0; i < plan->sites_count; i++)
		if (plan->sites[i].file == site->file && plan->sites[i].offset == site->offset)
			return true;
	return false;
}

static void make_plan(const struct plan *plan)
{
	stretches.exact_plan.level = LEVEL_RECORD;
	stretches.exact_plan.role = plan->role;
	stretches.exact_plan.is_guarded = plan->is_guarded;
	memcpy(stretches.exact_plan.accessors, plan->accessors, sizeof(plan->accessors));
	stretches.exact_plan.files_count = plan->files_count;
	for (u32 i = 0; i < plan->files_count; i++)
		stretches.exact_plan.files[i] = plan->files[i];
	stretches.exact_plan.sites_count = plan->stretch_sites_count;
	for (u32 i = 0; i < plan->stretch_sites_count; i++) {
		stretches.exact_plan.sites[i] = plan->stretch_sites[i];
		if (is_shared(plan, &plan->stretch_sites[i]))
			stretches.exact_plan.sites[i].price_ns = 0;
	}
}

int stretches_load(u64 mean, const struct engine *engine, const struct plan *plan,
		   const struct target *target)
{
	struct settings settings = {
		.level = LEVEL_RECORD,
		.slots = engine->settings.slots,
		.network_bits = engine->settings.network_bits,
		.network6_bits = engine->settings.network6_bits,
		.beside = engine,
	};

	stretches.due_ns = NEVER_NS;
	stretches.mean_ns = mean;
	stretches.noise = (u64)target->pid + 0x9e3779b97f4a7c15ULL;
	if (!stretches.mean_ns)
		return 0;
	make_plan(plan);
	return engine_load(&stretches.exact, &stretches.exact_plan, target, &settings);
}

int stretches_attach(void)
{
	if (!stretches.mean_ns)
		return 0;
	if (engine_attach(&stretches.exact, &stretches.exact_plan, &session->target,
			  LEVEL_CONNECTION))
		return -1;
	engine_set_wait_share(&stretches.exact, WALK_NONE);
	stretch_plan_next(0);
	return 0;
}

int stretches_follow(bool on)
{
	int level = on ? (int)LEVEL_CONNECTION : LEVEL_NONE;

	if (!stretches.mean_ns || stretches.exact.level == level)
		return 0;
	return engine_go(&stretches.exact, &stretches.exact_plan, &session->target, level);
}

u64 stretch_due_ns(void)
{
	return stretches.due_ns;
}

void stretch_plan_next(u64 later_ns)
{
	stretches.noise ^= stretches.noise >> 12; /* xorshift64* */
	stretches.noise ^= stretches.noise << 25;
	stretches.noise ^= stretches.noise >> 27;
	double part =
		(double)(stretches.noise * 0x2545f4914f6cdd1dULL >> 11) / (double)(1ULL << 53);
	double factor = 1 + JITTER * (2 * part - 1);

	stretches.due_ns =
		monotonic_ns() + (later_ns ? later_ns : (u64)((double)stretches.mean_ns * factor));
}

int stretch_attach(void)
{
	watchdog_beat();
	return engine_go(&stretches.exact, &stretches.exact_plan, &session->target, LEVEL_RECORD);
}

int stretch_detach(void)
{
	watchdog_beat();
	int error = engine_go(&stretches.exact, &stretches.exact_plan, &session->target,
			      LEVEL_CONNECTION);

	watchdog_beat();
	stretches_drain();
	return error;
}

/* CPU time of each part at a time: the interval since the last charge belongs to where a thread is.
 */
static void read_parts(u64 now_ns, u64 parts[PARTS])
{
	static struct thread_slot copy;
	struct lifecycle now;

	memset(parts, 0, PARTS * sizeof(*parts));
	engine_read_lifecycle(&stretches.exact, &now);
	for (u32 i = 0; i < now.fresh_count && i < stretches.exact.settings.slots; i++) {
		const struct thread_slot *slot =
			(const void *)(stretches.exact.slots +
				       (size_t)i * sizeof(struct thread_slot));
		if (__atomic_load_n(&slot->status, __ATOMIC_ACQUIRE) == THREAD_FREE)
			continue;
		session->accounts.torn_count += !account_copy(slot, &copy);
		for (u32 part = 0; part < PARTS; part++) {
			parts[part] += copy.ns[phases[part]][STATE_ON_CPU];
			if (copy.status != THREAD_EXITED && copy.owner == phases[part] &&
			    copy.state == STATE_ON_CPU)
				parts[part] += now_ns - copy.last_ns; /* may be below 0 */
		}
	}
}

void stretch_begin(u64 now_ns)
{
	read_parts(now_ns, stretches.before);
}

void stretch_end(u64 now_ns, u64 parts[PARTS])
{
	read_parts(now_ns, parts);
	for (u32 i = 0; i < PARTS; i++) {
		s64 spent = (s64)(parts[i] - stretches.before[i]);
		parts[i] = spent > 0 ? (u64)spent : 0;
	}
}

/* Run time and runs of a program since it was read last. */
static u64 runs_since(u32 number, u64 *count)
{
	struct bpf_prog_info info = {0};
	u32 length = sizeof(info);
	int fd = bpf_program__fd(stretches.exact.programs[number].program);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &length))
		return *count = 0;
	u64 ns = info.run_time_ns - stretches.last.run_ns[number];
	*count = info.run_cnt - stretches.last.run_count[number];
	stretches.last.run_ns[number] = info.run_time_ns;
	stretches.last.run_count[number] = info.run_cnt;
	return ns;
}

double stretches_spent_ns(void)
{
	double spent_ns = 0;
	u64 count;

	if (!stretches.mean_ns)
		return 0;
	for (u32 i = 0; i < stretches.exact.programs_count; i++) {
		const char *name = stretches.exact.programs[i].name;
		u64 ns = runs_since(i, &count);
		bool is_exit = !strcmp(name, "on_leave");
		if (!is_exit && strcmp(name, "on_enter") != 0)
			spent_ns += (double)ns + call_price()->call_ns * (double)count;
		else if (count)
			stretches.body_ns[is_exit] = (double)ns / (double)count;
	}
	for (u32 site = 0; site < stretches.exact_plan.sites_count; site++) {
		u64 hits = 0;
		for (u32 shard = 0; shard < stretches.exact.shards_count; shard++)
			hits += stretches.exact.hits[shard].count[site];
		const struct plan_site *of = &stretches.exact_plan.sites[site];
		spent_ns += (double)(hits - stretches.last.hits[site]) *
			    (of->price_ns * meter_in_situ() + stretches.body_ns[of->is_exit]);
		stretches.last.hits[site] = hits;
	}
	return spent_ns;
}

void stretches_drain(void)
{
	if (stretches.mean_ns)
		accounts_recycle_unsent(&stretches.exact);
}

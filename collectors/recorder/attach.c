// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is attached at each level.
 *
 * First the scheduler's tracepoints, then the boundaries, then the sampler: in that order no
 * boundary fires in a thread that has no account in the ledger yet. Bare system calls, because
 * levels change during a recording, in which nothing is allocated.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "budget.h"
#include "engine.h"
#include "failure.h"
#include "ledger.h"
#include "links.h"
#include "watchdog.h"

static enum link_group group_of(const struct engine *engine, enum link_group group)
{
	return engine->settings.beside ? links_beside(group) : group;
}

static bool has_connections(int level)
{
	return level >= (int)LEVEL_CONNECTION;
}

static bool has_details(int level)
{
	return level >= (int)LEVEL_HANDSHAKE;
}

static int pause_as(struct engine *engine, u32 how)
{
	engine->control.paused = how;
	return engine_set_control(engine);
}

static int look_at_threads(const struct engine *engine)
{
	return engine_iterate(engine->each_thread)
		       ? engine_refused("cannot look at the threads", errno)
		       : 0;
}

static int attach_programs(struct engine *engine, const char *const *names, u32 count,
			   enum link_group group)
{
	for (u32 i = 0; i < count; i++) {
		struct bpf_program *program =
			bpf_object__find_program_by_name(engine->object, names[i]);
		int fd = bpf_raw_tracepoint_open(NULL, bpf_program__fd(program));
		int error = links_add(group_of(engine, group), fd < 0 ? -errno : fd);
		if (error)
			return engine_refused(
				"cannot attach to events of the scheduler or of sockets", error);
		watchdog_beat();
	}
	return 0;
}

/*
 * Accounts of known threads go on from here: connections are `unknown` until their next boundary
 * (not those that are being set up, torn down or parked), others are `background`.
 */
static int attach_dense(struct engine *engine, const struct plan *plan, const struct target *target)
{
	const char *names[2 + SOCKET_PLACES] = {"on_switch", "on_wakeup"};
	u32 count = 2;

	pause_as(engine, 0);
	if (uses_sockets(engine) && (engine->is_flow || !engine->has_ports)) {
		if (engine_note_ports(engine, target->pid))
			return -1;
		engine->has_ports = true;
	}
	for (u32 i = 0; i < SOCKET_PLACES; i++)
		if (engine_has_place(engine, i))
			names[count++] = socket_places[i].program;
	if (attach_programs(engine, names, count, LINKS_DENSE) || look_at_threads(engine))
		return -1;
	engine->control.blind_ns = 0;
	engine_set_control(engine);
	return engine->lacks_traps ? 0 : uprobes_attach(engine, plan, target, LINKS_TRAPS);
}

int engine_set_traps(struct engine *engine, const struct plan *plan, const struct target *target,
		     bool on)
{
	if (engine->lacks_traps == !on)
		return 0;
	engine->lacks_traps = !on;
	if (!has_ledger(engine->level))
		return 0;
	if (on)
		return uprobes_attach(engine, plan, target, LINKS_TRAPS);
	links_close_group(group_of(engine, LINKS_TRAPS));
	return 0;
}

/* Threads that are live after all that run were paused ended while nothing was attached. */
static void mark_gone(struct engine *engine)
{
	struct lifecycle now;

	engine_read_lifecycle(engine, &now);
	for (u32 i = 0; i < now.fresh_count && i < engine->settings.slots; i++) {
		struct thread_slot *slot =
			(void *)(engine->slots + (size_t)i * sizeof(struct thread_slot));
		u32 live = THREAD_LIVE;
		engine->gone_count +=
			__atomic_compare_exchange_n(&slot->status, &live, (u32)THREAD_EXITED, false,
						    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
}

/*
 * Rare boundaries, handshakes and samples go on, as far as the level has them. The cells of a
 * thread do not change; a handshake is marked as without states, its wall time and that of its
 * operations are valid.
 */
static int detach_dense(struct engine *engine, int level)
{
	u32 groups = 1U << group_of(engine, LINKS_DENSE) | 1U << group_of(engine, LINKS_TRAPS);

	if (!has_connections(level))
		groups |= 1U << group_of(engine, LINKS_CONNECTIONS);
	if (!has_details(level))
		groups |= 1U << group_of(engine, LINKS_DETAILS);
	links_close_groups(groups);
	pause_as(engine, 1);
	if (look_at_threads(engine))
		return -1;
	mark_gone(engine);
	return 0;
}

static int attach_rare(struct engine *engine, const struct plan *plan, const struct target *target)
{
	if (!has_ledger(engine->level) && look_at_threads(engine))
		return -1;
	return uprobes_attach(engine, plan, target, LINKS_RARE);
}

/* Threads may get another connection from here on, and nothing tells. */
static int detach_connections(struct engine *engine)
{
	links_close_group(group_of(engine, LINKS_CONNECTIONS));
	engine->control.blind_ns = monotonic_ns();
	return engine_set_control(engine);
}

/* Handshakes in flight: their ends will not be seen. */
static void forget_handshakes(struct engine *engine)
{
	u64 key;

	while (!bpf_map_get_next_key(engine->handshakes_fd, NULL, &key) &&
	       !bpf_map_delete_elem(engine->handshakes_fd, &key))
		;
}

static int detach_rare(struct engine *engine)
{
	links_close_group(group_of(engine, LINKS_RARE));
	pause_as(engine, FORGOTTEN);
	int error = look_at_threads(engine);
	forget_handshakes(engine);
	pause_as(engine, 1);
	return error;
}

int engine_go(struct engine *engine, const struct plan *plan, const struct target *target,
	      int level)
{
	bool was_dense = has_ledger(engine->level);
	bool was_rare = engine->level >= (int)LEVEL_SIGNATURE;
	bool had_details = has_details(engine->level);
	bool had_connections = has_connections(engine->level);

	if (was_dense && !has_ledger(level) && detach_dense(engine, level))
		return -1;
	if (had_connections && !has_connections(level) && detach_connections(engine))
		return -1;
	if (had_details && !has_details(level) && !was_dense)
		links_close_group(group_of(engine, LINKS_DETAILS));
	if (was_rare && level < (int)LEVEL_SIGNATURE && detach_rare(engine))
		return -1;
	if (has_ledger(level) && !was_dense && attach_dense(engine, plan, target))
		return -1;
	if (has_ledger(level))
		engine->level = level; /* the threads have been looked at */
	if (has_connections(level) && !had_connections &&
	    uprobes_attach(engine, plan, target, LINKS_CONNECTIONS))
		return -1;
	if (level >= (int)LEVEL_SIGNATURE && !was_rare && attach_rare(engine, plan, target))
		return -1;
	if (has_details(level) && !had_details &&
	    uprobes_attach(engine, plan, target, LINKS_DETAILS))
		return -1;
	engine->level = level;
	if (engine->settings.sample_hz)
		sampler_enable(level >= (int)LEVEL_SAMPLE);
	return 0;
}

int engine_attach(struct engine *engine, const struct plan *plan, const struct target *target,
		  int level)
{
	static const char *const names[] = {"on_fork", "on_exit_thread", "on_exec"};

	engine->level = -1;
	pause_as(engine, 1);
	if (attach_programs(engine, names, COUNT(names), LINKS_ALWAYS) ||
	    engine_go(engine, plan, target, level))
		return -1;
	return engine->settings.sample_hz ? sampler_attach(engine, false) : 0;
}

void engine_detach(struct engine *engine)
{
	engine->level = -1;
	links_close();
}

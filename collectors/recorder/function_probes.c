// SPDX-License-Identifier: GPL-2.0-only
#include "function_probes.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "links.h"
#include "objects.h"
#include "session.h"
#include "watchdog.h"

/* Points of one file and program. */
static struct {
	u32 count;
	u64 offsets[PLAN_POINTS_MOST], cookies[PLAN_POINTS_MOST];
} group;

int function_attach(const struct function_probes *probes, bool has_multi, const char *path,
		    const u64 *offsets, const u64 *cookies, u32 count, int pid, bool is_exit,
		    bool is_return)
{
	int program = bpf_program__fd(is_exit ? probes->leave : probes->enter);
	int error = 0;

	watchdog_beat();
	if (has_multi)
		return links_add(LINKS_FUNCTIONS, open_multi_link(program, path, offsets, cookies,
								  count, pid, is_return));
	for (u32 i = 0; i < count && error >= 0; i++) {
		error = links_add(LINKS_FUNCTIONS, open_event_link(program, path, offsets[i],
								   cookies[i], pid, is_return));
		watchdog_beat();
	}
	return error;
}

static void gather(const struct plan *plan, u32 file, bool is_exit, bool is_return)
{
	group.count = 0;
	for (u32 i = 0; i < plan->points_count; i++) {
		const struct plan_point *point = &plan->points[i];
		if (point->file != file || point->is_exit != is_exit ||
		    point->is_return != is_return)
			continue;
		group.offsets[group.count] = point->offset;
		group.cookies[group.count++] = point->cookie;
	}
}

int function_points_attach(const struct function_probes *probes, bool has_multi,
			   const struct plan *plan, const struct target *target)
{
	char path[32];

	/* Exits first: an entry whose exit is not yet probed would look like a missed exit. */
	for (int pass = 0; pass < 4; pass++)
		for (u32 file = 0; file < plan->files_count; file++) {
			gather(plan, file, pass < 2, pass % 2);
			if (!group.count)
				continue;
			snprintf(path, sizeof(path), "/proc/self/fd/%d", target->files[file]);
			int error = function_attach(probes, has_multi, path, group.offsets,
						    group.cookies, group.count, target->pid,
						    pass < 2, pass % 2);
			if (error < 0)
				return fail(EXIT_CODE_HOST, "cannot probe functions of %s: %s",
					    plan->files[file].path, strerror(-error));
		}
	return 0;
}

/* The maps of the ledger that the programs use. */
static int share_maps(const struct engine *engine)
{
	static const char *const names[] = {"slots", "slot_of_task"};
	int error = 0;

	for (u32 i = 0; i < COUNT(names) && !error; i++)
		error = bpf_map__reuse_fd(
			bpf_object__find_map_by_name(session->functions.probes.object, names[i]),
			bpf_map__fd(bpf_object__find_map_by_name(engine->object, names[i])));
	if (!error)
		error = bpf_map__reuse_fd(
			object_data_map(session->functions.probes.object, ".data.heartbeat"),
			bpf_map__fd(engine_data_map(engine, ".data.heartbeat")));
	return error;
}

static int configure(const struct engine *engine, const struct target *target)
{
	struct function_config config = {.tgid = target->pid, .own_tgid = getpid()};

	int error = bpf_map__set_initial_value(
		object_data_map(session->functions.probes.object, ".rodata.config"), &config,
		sizeof(config));
	if (!error)
		error = share_maps(engine);
	if (!error && engine->features.has_multi) {
		enum bpf_attach_type type = (enum bpf_attach_type)ATTACH_UPROBE_MULTI;
		error = bpf_program__set_expected_attach_type(session->functions.probes.enter,
							      type);
		if (!error)
			error = bpf_program__set_expected_attach_type(
				session->functions.probes.leave, type);
	}
	return error;
}

int function_probes_load(const struct engine *engine, const struct plan *plan,
			 const struct target *target)
{
	size_t size;
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "functions");

	if (!plan->functions_count)
		return 0;
	const void *content = functions_content(&size);
	session->functions.probes.object = bpf_object__open_mem(content, size, &options);
	if (!session->functions.probes.object)
		return engine_refused("cannot read the programs for functions", errno);
	session->functions.probes.enter = bpf_object__find_program_by_name(
		session->functions.probes.object, "on_function_enter");
	session->functions.probes.leave = bpf_object__find_program_by_name(
		session->functions.probes.object, "on_function_leave");
	int error = configure(engine, target);
	if (!error)
		error = bpf_object__load(session->functions.probes.object);
	if (error)
		return engine_refused("the kernel refused the programs for functions", error);
	session->functions.probes.sums_fd =
		bpf_object__find_map_fd_by_name(session->functions.probes.object, "function_sums");
	session->functions.probes.times_fd =
		bpf_object__find_map_fd_by_name(session->functions.probes.object, "function_times");
	session->functions.probes.losses_fd = bpf_object__find_map_fd_by_name(
		session->functions.probes.object, "function_losses");
	malloc_trim(0); /* the kernel's types took 20 MB */
	return 0;
}

int function_switch_attach(const struct function_probes *probes)
{
	struct bpf_program *program =
		bpf_object__find_program_by_name(probes->object, "on_function_switch");
	int fd = bpf_raw_tracepoint_open(NULL, bpf_program__fd(program));
	int error = links_add(LINKS_FUNCTIONS, fd < 0 ? -errno : fd);

	return error < 0 ? engine_refused("cannot attach to the scheduler", error) : 0;
}

int function_probes_begin(const struct engine *engine, const struct plan *plan,
			  const struct target *target)
{
	bool has_multi = engine->features.has_multi;

	if (!plan->functions_count)
		return 0;
	if (function_costs_measure(&session->functions.probes, has_multi, plan) ||
	    function_switch_attach(&session->functions.probes))
		return -1;
	return function_points_attach(&session->functions.probes, has_multi, plan, target);
}

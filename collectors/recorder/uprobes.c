// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "failure.h"
#include "links.h"
#include "watchdog.h"

/* Sites of one file and program. */
struct group {
	u32 file;
	bool is_exit, is_return;
	u32 count;
	u64 offsets[PLAN_SITES_MOST], cookies[PLAN_SITES_MOST];
};

static int attach_group(struct engine *engine, const struct group *group, int file, int pid,
			enum link_group links)
{
	struct bpf_program *program = bpf_object__find_program_by_name(
		engine->object, group->is_exit ? "on_leave" : "on_enter");
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	if (engine->features.has_multi)
		return links_add(links, open_multi_link(bpf_program__fd(program), path,
							group->offsets, group->cookies,
							group->count, pid, group->is_return));
	for (u32 i = 0; i < group->count; i++) {
		int error = links_add(links, open_event_link(bpf_program__fd(program), path,
							     group->offsets[i], group->cookies[i],
							     pid, group->is_return));
		if (error)
			return error;
		watchdog_beat();
	}
	return 0;
}

static enum link_group links_of(const struct plan_site *site)
{
	static const enum link_group groups[LEVELS] = {
		[LEVEL_SIGNATURE] = LINKS_RARE,
		[LEVEL_HANDSHAKE] = LINKS_DETAILS,
		[LEVEL_CONNECTION] = LINKS_CONNECTIONS,
		[LEVEL_FLOW] = LINKS_TRAPS,
	};

	return groups[site->lowest];
}

static void gather(const struct engine *engine, const struct plan *plan, enum link_group links,
		   struct group *group)
{
	group->count = 0;
	for (u32 i = 0; i < plan->sites_count; i++) {
		const struct plan_site *site = &plan->sites[i];
		if (site->file != group->file || site->is_exit != group->is_exit ||
		    site->is_return != group->is_return || links_of(site) != links ||
		    (site->is_covered && engine->is_covered))
			continue;
		group->offsets[group->count] = site->offset;
		group->cookies[group->count++] = site->cookie;
	}
}

int uprobes_attach(struct engine *engine, const struct plan *plan, const struct target *target,
		   enum link_group links)
{
	static struct group group;
	enum link_group own = engine->settings.beside ? links_beside(links) : links;

	/* Exits first: an entry whose exit is not yet probed would look like a missed exit. */
	for (int pass = 0; pass < 4; pass++)
		for (group.file = 0; group.file < plan->files_count; group.file++) {
			group.is_exit = pass < 2;
			group.is_return = pass % 2;
			gather(engine, plan, links, &group);
			if (!group.count)
				continue;
			watchdog_beat();
			int error = attach_group(engine, &group, target->files[group.file],
						 target->pid, own);
			if (error)
				return fail(EXIT_CODE_HOST, "cannot probe %s: %s",
					    plan->files[group.file].path, strerror(-error));
		}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "start.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "budget.h"
#include "failure.h"
#include "function_probes.h"
#include "output.h"
#include "proc.h"
#include "session.h"

static struct utsname host;

const char *start_read_plan(const char *path, struct plan *plan, size_t *length)
{
	struct stat found;
	const char *why;
	char *text = copy_file(path, PLAN_BYTES_MOST, &found, &why);

	if (!text) {
		fail(EXIT_CODE_USAGE, "cannot read the plan %s: %s", path, why);
		return NULL;
	}
	*length = (size_t)found.st_size;
	return plan_parse(plan, text, *length) ? NULL : text;
}

int start_check(const struct options *options, const struct plan *plan)
{
	struct stat namespace;

	uname(&host);
	if (strcmp(plan->architecture, host.machine) != 0)
		return fail(EXIT_CODE_USAGE, "the plan is refused: it is for %s, this host is %s",
			    plan->architecture, host.machine);
	if (strcmp(plan->kernel, host.release) != 0 && !options->any_kernel)
		return fail(EXIT_CODE_USAGE,
			    "the plan is refused: what is safe was judged on Linux %s, this is %s: "
			    "plan "
			    "on this host, or give --any-kernel if you know better",
			    plan->kernel, host.release);
	if (options->level != (int)plan->level &&
	    (options->level > (int)plan->level || options->level >= LEVEL_FLOW))
		return fail(EXIT_CODE_USAGE,
			    "--level %s: the plan is for %s; give sample or handshake, or "
			    "plan again",
			    level_names[options->level], level_names[plan->level]);
	if (plan->functions_count &&
	    (options->budget > 0 || (options->level >= 0 && options->level != (int)plan->level)))
		return fail(EXIT_CODE_USAGE,
			    "the plan counts functions, which no budget limits and which belongs "
			    "to the level of the plan: leave out --budget and --level, or plan "
			    "without --functions");
	if (options->calibrate_ns && (!plan->stretch_sites_count || options->level >= 0))
		return fail(EXIT_CODE_USAGE,
			    "--calibrate needs a plan of level flow with sites for stretches: plan "
			    "with --level flow --calibrate, and leave out --level here");
	/* The programs see process ids of the host: PROC_PID_INIT_INO of the kernel. */
	if (stat("/proc/self/ns/pid", &namespace) || namespace.st_ino != 0xEFFFFFFC)
		return fail(EXIT_CODE_HOST, "it runs in its own pid namespace, or /proc is not "
					    "mounted: run it with the "
					    "pid namespace of the host");
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return fail(EXIT_CODE_HOST,
			    "/sys/kernel/btf/vmlinux cannot be read (%s): /sys is not "
			    "mounted, or the kernel has no BTF",
			    strerror(errno));
	return 0;
}

/* Room for threads that the server may come to have, as far as that is cheap. */
enum { SLOTS_LEAST = 8192, SLOTS_FACTOR = 4, SLOTS_MOST = 1 << 16 };

static u32 slots_for(u32 threads_count)
{
	u64 wanted = (u64)threads_count * SLOTS_FACTOR;

	if (wanted < SLOTS_LEAST)
		return SLOTS_LEAST;
	return wanted < SLOTS_MOST ? (u32)wanted : SLOTS_MOST;
}

static u64 longer(u64 one_ns, u64 other_ns)
{
	return one_ns > other_ns ? one_ns : other_ns;
}

int start_settings(const struct options *options, const struct plan *plan,
		   const struct target *target, struct settings *settings)
{
	/* A plan of a client says by its sites how much is probed: its ledger is always on. */
	enum level whole = plan->role ? LEVEL_RECORD : plan->level;

	*settings = (struct settings){
		.level = options->level < 0 ? whole : (enum level)options->level,
		.sample_hz = plan->has_samples ? options->sample_hz : 0,
		.slots = options->slots ? options->slots : slots_for(target->threads_count),
		.longest_ns =
			options->is_controlled ? 0 : longer(options->window_ns, LONGEST_WINDOW_NS),
		.network_bits = options->network_bits,
		.network6_bits = options->network6_bits,
	};
	if (settings->level == LEVEL_SAMPLE && !settings->sample_hz)
		return fail(EXIT_CODE_USAGE,
			    "nothing would be recorded: no samples at level sample");
	return 0;
}

int start_tables(const struct options *options, const struct plan *plan)
{
	char *beside = session->tables_path;

	if (options->tables || !options->plan)
		return walks_open(options->tables, plan);
	int length = snprintf(beside, PLAN_PATH_MOST, "%s.unwind", options->plan);
	bool is_there = length < PLAN_PATH_MOST && !access(beside, F_OK);
	return walks_open(is_there ? beside : NULL, plan);
}

static void read_cpu_facts(struct stream_start *start)
{
	static struct lines lines;

	strcpy(start->cpu_model, "unknown");
	if (!lines_open(&lines, "/proc/cpuinfo"))
		return;
	for (char *line; (line = lines_next(&lines)) && *line;) {
		const char *value = strstr(line, ": ");
		if (value && !strncmp(line, "model name", 10))
			snprintf(start->cpu_model, sizeof(start->cpu_model), "%s", value + 2);
		if (value && (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)))
			snprintf(start->cpu_flags, sizeof(start->cpu_flags), "%s", value + 2);
	}
	lines_close(&lines);
}

static bool put_start(const struct engine *engine, const struct target *target,
		      const struct options *options)
{
	static u32 cpus[CPUS_MOST];
	struct stream_start *start = output_put_alone(STREAM_START, sizeof(*start));

	if (!start)
		return false;
	start->wall_ns = clock_ns(CLOCK_REALTIME);
	start->monotonic_ns = monotonic_ns();
	start->window_ns = options->window_ns;
	start->start_cpu_ns = session_cpu_ns();
	start->start_ticks = target->start_ticks;
	start->slots_bytes = (u64)engine->settings.slots * sizeof(struct thread_slot) *
			     (options->calibrate_ns ? 2 : 1); /* stretches have their own */
	start->unwind_bytes = walks_tables_bytes();
	start->pid = target->pid;
	start->own_pid = target->own_pid;
	start->sample_hz = engine->settings.sample_hz;
	start->slots_count = engine->settings.slots;
	start->cpus_count = engine->cpus_count;
	start->online_count = read_cpus("online", cpus, CPUS_MOST);
	start->multi = engine->features.has_multi;
	if (uses_sockets(engine))
		start->socket_events = engine->features.sockets == SOCKETS_FUNCTIONS ? 2 : 1;
	start->switch_has_state = engine->features.switch_has_state;
	start->network_bits = (u16)engine->settings.network_bits;
	start->network6_bits = (u16)engine->settings.network6_bits;
	snprintf(start->level, sizeof(start->level), "%s", level_names[engine->settings.level]);
	snprintf(start->hostname, sizeof(start->hostname), "%s", host.nodename);
	snprintf(start->kernel, sizeof(start->kernel), "%s", host.release);
	snprintf(start->machine, sizeof(start->machine), "%.15s", host.machine);
	snprintf(start->recorder, sizeof(start->recorder), "%s", TLSTAX_VERSION);
	read_cpu_facts(start);
	return true;
}

int start_put(const struct engine *engine, const struct plan *plan, struct target *target,
	      const struct options *options, const char *text, size_t length)
{
	bool has_room = put_start(engine, target, options);

	for (size_t at = 0; at < length && has_room;) {
		size_t part = length - at < STREAM_FRAME_MOST ? length - at : STREAM_FRAME_MOST;
		char *frame = output_put_alone(STREAM_PLAN, part);
		if (frame)
			memcpy(frame, text + at, part);
		has_room = frame != NULL;
		at += part;
	}
	if (!has_room || !function_costs_put(plan) || !target_send_mappings(target))
		return fail(EXIT_CODE_USAGE,
			    "the queue is too small for the plan: give more than "
			    "--queue %zuK",
			    options->queue_bytes >> 10);
	output_commit();
	return 0;
}

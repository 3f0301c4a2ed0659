// SPDX-License-Identifier: GPL-2.0-only
#include "engine.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"
#include "heartbeat.h"
#include "objects.h"
#include "proc.h"
#include "walks.h"
#include "watchdog.h"

enum { KEPT_BYTES = 1 << 25, SAMPLES_LEAST = 1024 };

static char log_text[512];

static int keep_line(enum libbpf_print_level level, const char *format, va_list arguments)
{
	char line[256];

	if (level > LIBBPF_INFO)
		return 0;
	vsnprintf(line, sizeof(line), format, arguments);
	line[strcspn(line, "\n")] = 0;
	size_t used = strlen(log_text), more = strlen(line) + 2;
	if (used + more >= sizeof(log_text)) /* the last lines say why */
		used = 0;
	snprintf(log_text + used, sizeof(log_text) - used, "%s%s", used ? "; " : "", line);
	return 0;
}

int engine_refused(const char *what, int error)
{
	return fail(EXIT_CODE_HOST, "%s: %s%s%s%s", what, strerror(error < 0 ? -error : error),
		    *log_text ? " (" : "", log_text, *log_text ? ")" : "");
}

struct bpf_map *object_data_map(const struct bpf_object *object, const char *suffix)
{
	struct bpf_map *map = NULL;

	while ((map = bpf_object__next_map(object, map))) {
		const char *name = bpf_map__name(map);
		size_t length = strlen(name), wanted = strlen(suffix);
		if (length >= wanted && !strcmp(name + length - wanted, suffix))
			return map;
	}
	return NULL;
}

struct bpf_map *engine_data_map(const struct engine *engine, const char *suffix)
{
	return object_data_map(engine->object, suffix);
}

static struct bpf_map *map_of(const struct engine *engine, const char *name)
{
	return bpf_object__find_map_by_name(engine->object, name);
}

static void add_program(struct engine *engine, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(engine->object, name);

	engine->programs[engine->programs_count++] = (struct engine_program){name, program, false};
}

static void fill_config(const struct engine *engine, const struct plan *plan,
			const struct target *target, struct config *config)
{
	*config = (struct config){
		.tgid = target->pid,
		.switch_has_state = engine->features.switch_has_state,
		.client = plan->role,
		.covered_by_tracepoint = engine->is_covered,
		.flow = engine->is_flow,
		.slots = engine->settings.slots,
		.shards = engine->shards_count,
		.no_user_stacks = !plan->has_user_stacks,
		.network_bits = engine->settings.network_bits,
		.network6_bits = engine->settings.network6_bits,
		.off_version = plan->accessors[ACCESSOR_VERSION],
		.off_rwstate = plan->accessors[ACCESSOR_RWSTATE],
		.off_shutdown = plan->accessors[ACCESSOR_SHUTDOWN],
		.off_state = plan->accessors[ACCESSOR_STATE],
		.off_hit = plan->accessors[ACCESSOR_HIT],
		.off_session = plan->accessors[ACCESSOR_SESSION],
		.off_session_cipher = plan->accessors[ACCESSOR_SESSION_CIPHER],
		.off_cipher_id = plan->accessors[ACCESSOR_CIPHER_ID],
		.off_server = plan->accessors[ACCESSOR_SERVER],
	};
	fill_wait_kinds(config->wait_kind);
}

/* An engine that is loaded already: all have one heartbeat. */
static const struct engine *loaded_before(const struct engine *engine)
{
	const struct settings *settings = &engine->settings;

	return settings->beside ? settings->beside : settings->first;
}

/*
 * Room for the samples of the longest window, if that is less than the map's own: each window looks
 * at every bucket of the map, and these are as many as there is room for.
 */
static u32 samples_most(const struct engine *engine, const struct bpf_map *samples)
{
	const struct settings *settings = &engine->settings;
	u32 most = bpf_map__max_entries(samples);
	double seconds = (double)settings->longest_ns / (double)NS_PER_S;
	double wanted = (double)settings->sample_hz * engine->online_count * seconds;

	if (settings->sample_hz && (!settings->longest_ns || wanted > most))
		return most;
	return wanted > SAMPLES_LEAST ? (u32)wanted : SAMPLES_LEAST;
}

static int configure(struct engine *engine, const struct plan *plan, const struct target *target)
{
	struct bpf_map *constants = engine_data_map(engine, ".rodata.config");
	struct config config;
	int error;

	fill_config(engine, plan, target, &config);
	error = bpf_map__set_initial_value(constants, &config, sizeof(config));
	if (!error)
		error = bpf_map__set_max_entries(map_of(engine, "slots"), engine->settings.slots);
	if (!error)
		error = bpf_map__set_max_entries(map_of(engine, "free_slots"),
						 engine->settings.slots + 1);
	if (!error)
		error = bpf_map__set_max_entries(map_of(engine, "latency"), engine->shards_count);
	if (!error)
		error = bpf_map__set_max_entries(map_of(engine, "hits"), engine->shards_count);
	if (!error)
		error = bpf_map__set_max_entries(map_of(engine, "cpus"), engine->cpus_count);
	if (!error)
		error = bpf_map__set_max_entries(map_of(engine, "samples"),
						 samples_most(engine, map_of(engine, "samples")));
	if (!error)
		error = bpf_program__set_autoload(
			bpf_object__find_program_by_name(engine->object, "each_file"),
			uses_sockets(engine));
	if (!error)
		error = walks_configure(engine->object, !engine->settings.beside);
	const struct engine *loaded = loaded_before(engine);
	if (!error && loaded)
		error = bpf_map__reuse_fd(engine_data_map(engine, ".data.heartbeat"),
					  bpf_map__fd(engine_data_map(loaded, ".data.heartbeat")));
	for (u32 i = 0; i < SOCKET_PLACES && !error; i++)
		error = bpf_program__set_autoload(
			bpf_object__find_program_by_name(engine->object, socket_places[i].program),
			engine_has_place(engine, i));
	for (u32 i = 0; i < engine->programs_count && !error; i++) {
		struct engine_program *entry = &engine->programs[i];
		if (!error && engine->features.has_multi &&
		    (!strcmp(entry->name, "on_enter") || !strcmp(entry->name, "on_leave")))
			error = bpf_program__set_expected_attach_type(
				entry->program, (enum bpf_attach_type)ATTACH_UPROBE_MULTI);
	}
	return error ? engine_refused("cannot set up the programs", error) : 0;
}

/* The memory of a map whose values have so many bytes. NULL: an error. */
static void *memory_of(const struct bpf_map *map, size_t entry_bytes, bool writable)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (bpf_map__value_size(map) != entry_bytes) {
		fail(EXIT_CODE_HOST,
		     "the programs are of another build: values of %s have %u bytes",
		     bpf_map__name(map), bpf_map__value_size(map));
		return NULL;
	}
	size_t bytes = entry_bytes * bpf_map__max_entries(map);
	void *memory =
		mmap(NULL, (bytes + page - 1) / page * page,
		     PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, bpf_map__fd(map), 0);
	if (memory == MAP_FAILED) {
		engine_refused("cannot map the programs' memory", errno);
		return NULL;
	}
	return memory;
}

static int map_memory(struct engine *engine)
{
	engine->slots_fd = bpf_map__fd(map_of(engine, "slots"));
	engine->control_fd = bpf_map__fd(engine_data_map(engine, ".data.control"));
	engine->samples_fd = bpf_map__fd(map_of(engine, "samples"));
	engine->handshakes_fd = bpf_map__fd(map_of(engine, "handshakes"));
	engine->offcpu_fd = bpf_map__fd(map_of(engine, "offcpu"));
	engine->stacks_fd = bpf_map__fd(map_of(engine, "stacks"));
	engine->more_stacks_fd = bpf_map__fd(map_of(engine, "more_stacks"));
	engine->lifecycle = memory_of(engine_data_map(engine, ".data.lifecycle"),
				      sizeof(struct lifecycle), false);
	engine->slots = memory_of(map_of(engine, "slots"), sizeof(struct thread_slot), true);
	engine->free_slots = memory_of(map_of(engine, "free_slots"), sizeof(u64), true);
	engine->latency = memory_of(map_of(engine, "latency"), sizeof(struct latency_shard), false);
	engine->hits = memory_of(map_of(engine, "hits"), sizeof(struct site_hits), false);
	engine->losses = memory_of(map_of(engine, "losses"), sizeof(u64), false);
	engine->process_counts =
		memory_of(map_of(engine, "process_counts"), sizeof(struct process_counts), true);
	engine->cpus = memory_of(map_of(engine, "cpus"), sizeof(struct cpu_counts), true);
	struct bpf_map *records = map_of(engine, "records");
	if (failure.code ||
	    ring_map(&engine->records, bpf_map__fd(records), bpf_map__max_entries(records)))
		return -1;
	if (loaded_before(engine))
		return 0; /* it has the heartbeat of that one */
	int heartbeat = bpf_map__fd(engine_data_map(engine, ".data.heartbeat"));
	struct heartbeat *beat =
		mmap(NULL, sizeof(*beat), PROT_READ | PROT_WRITE, MAP_SHARED, heartbeat, 0);
	if (beat == MAP_FAILED)
		return engine_refused("cannot map the programs' memory", errno);
	watchdog_share(beat);
	return 0;
}

int engine_load(struct engine *engine, const struct plan *plan, const struct target *target,
		const struct settings *settings)
{
	static u32 cpus[CPUS_MOST];
	size_t size;

	engine->settings = *settings;
	engine->control.offcpu_mask = 0;
	libbpf_set_print(keep_line);
	mallopt(M_MMAP_THRESHOLD, KEPT_BYTES); /* the types are read twice: keep that memory */
	mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
	libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
	if (loaded_before(engine))
		engine->features = loaded_before(engine)->features;
	else if (features_find(&engine->features))
		return -1;
	u32 count = read_cpus("possible", cpus, CPUS_MOST);
	engine->cpus_count = count ? cpus[count - 1] + 1 : 1;
	count = read_cpus("online", cpus, CPUS_MOST);
	engine->online_count = count ? count : 1;
	engine->shards_count = count ? cpus[count - 1] + 1 : 1;
	if (engine->shards_count > SHARDS_MOST)
		engine->shards_count = SHARDS_MOST;
	engine->is_flow = settings->level == LEVEL_FLOW && plan->role == 0;
	bool has_sockets = engine->features.sockets != SOCKETS_NONE;
	if (engine->is_flow && !has_sockets)
		return fail(EXIT_CODE_HOST,
			    "level flow: this kernel has no events of sockets (Linux 6.3): %s. "
			    "Plan for level command or record",
			    sockets_lack());
	for (u32 i = 0; i < plan->sites_count && !engine->is_flow; i++)
		engine->is_covered |= plan->sites[i].is_covered && has_sockets;
	const void *content = object_content(plan->is_guarded, &size);
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "ledger");
	engine->object = bpf_object__open_mem(content, size, &options);
	if (!engine->object)
		return engine_refused("cannot read the programs", errno);
	static const char *const names[] = {"on_switch", "on_wakeup", "on_fork",  "on_exit_thread",
					    "on_exec",	 "on_sample", "on_enter", "on_leave"};
	for (u32 i = 0; i < COUNT(names); i++)
		add_program(engine, names[i]);
	for (u32 i = 0; i < SOCKET_PLACES; i++)
		add_program(engine, socket_places[i].program);
	if (configure(engine, plan, target))
		return -1;
	int error = bpf_object__load(engine->object);
	if (error)
		return engine_refused("the kernel refused the programs", error);
	if (map_memory(engine) || (!settings->beside && walks_begin(engine, target)))
		return -1;
	engine->each_thread = engine_iterator(engine, "each_thread", 0);
	engine->each_counts = engine_iterator(engine, "each_counts", target->pid);
	if (!engine->each_thread || !engine->each_counts)
		return engine_refused("cannot attach the iterators", errno);
	malloc_trim(0); /* the kernel's types took 20 MB */
	return 0;
}

void engine_read_lifecycle(const struct engine *engine, struct lifecycle *lifecycle)
{
	*lifecycle = *engine->lifecycle;
}

u64 engine_ended_count(const struct engine *engine)
{
	u64 ended_count = __atomic_load_n(&engine->lifecycle->ended_count, __ATOMIC_ACQUIRE);

	return ended_count + engine->gone_count;
}

int engine_set_control(struct engine *engine)
{
	return bpf_map_update_elem(engine->control_fd, &(u32){0}, &engine->control, 0);
}

void engine_set_wait_share(struct engine *engine, u32 share)
{
	engine->control.offcpu_mask = share - 1;
	engine_set_control(engine);
}

bool engine_has_room(const struct engine *engine)
{
	struct lifecycle now;

	engine_read_lifecycle(engine, &now);
	return now.fresh_count < engine->settings.slots || now.reused_count < engine->free_slots[0];
}

void engine_keep_up(struct engine *engine, const struct target *target)
{
	struct process_counts *counts = engine->process_counts;
	struct lifecycle now;

	engine_read_lifecycle(engine, &now);
	/* Threads of io_uring are born unannounced: they are missed where the counts are read. */
	bool lacks_some = counts->thread_count > counts->account_count;
	counts->thread_count = 0; /* once for each reading */
	if (now.untracked_count || now.refused_count > engine->refused_count || lacks_some) {
		engine->refused_count = now.refused_count;
		if (engine_has_room(engine))
			engine_iterate(engine->each_thread);
	}
	if (engine->settings.sample_hz)
		sampler_keep_up(engine);
	walks_keep_up(target);
}

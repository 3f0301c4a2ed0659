/* SPDX-License-Identifier: GPL-2.0-only */
/* The ledger's programs in the kernel: loaded, attached as planned, and their maps. */
#ifndef TLSTAX_ENGINE_H
#define TLSTAX_ENGINE_H

#include <bpf/libbpf.h>

#include "kernel_features.h"
#include "ledger.h"
#include "links.h"
#include "plan.h"
#include "ring.h"
#include "target.h"

enum { SHARDS_MOST = 256, CPUS_MOST = 4096, PROGRAMS_MOST = 16 };

struct engine;

struct settings {
	enum level level;
	u32 sample_hz, slots;
	u64 longest_ns;			 /* of windows; 0: somebody else says when they end */
	u32 network_bits, network6_bits; /* of clients' addresses that are kept; 0: none */
	const struct engine *beside;	 /* one of the same target: no stacks and samples then */
	const struct engine *first;	 /* of the first target; NULL: it is that itself */
};

/* A program whose runs are counted. */
struct engine_program {
	const char *name;
	struct bpf_program *program;
	bool is_on;
};

struct engine {
	struct settings settings;
	struct features features;
	bool is_covered; /* events of sockets replace the probes that the plan marks */
	bool is_flow;	 /* they alone tell commands */
	bool has_ports;	 /* that the target listens on: see engine_note_ports() */
	u32 cpus_count;	 /* numbers that a CPU can have */
	u32 shards_count;
	u32 online_count;  /* CPUs, when it began */
	u64 refused_count; /* by the kernel, when it was kept up last */
	int level;	   /* what is attached, -1: nothing that costs */
	bool lacks_traps;  /* the dense sites are not probed: see engine_set_traps() */
	struct bpf_object *object;
	struct control control;
	struct engine_program programs[PROGRAMS_MOST];
	u32 programs_count;
	int slots_fd, control_fd, samples_fd, offcpu_fd, stacks_fd, more_stacks_fd;
	int handshakes_fd;
	u64 gone_count; /* accounts that attach.c ended: see engine_ended_count() */
	/* The maps' memory. */
	u8 *slots;
	const volatile struct lifecycle *lifecycle;
	volatile u64 *free_slots;
	struct latency_shard *latency;
	struct site_hits *hits;
	volatile u64 *losses;
	struct process_counts *process_counts;
	struct cpu_counts *cpus;
	struct ring records;
	struct bpf_link *each_thread, *each_counts;
};

/* The CPU samples of a target. */
struct sampler {
	u8 is_sampled[CPUS_MOST];
	int events[CPUS_MOST], links[CPUS_MOST];
	u64 counted_ns[CPUS_MOST]; /* by each event when it was read last */
	/* When it was looked last which CPUs there are: which, and the suspends until then. */
	char online[512];
	u64 looked_ns, slept_ns;
	bool is_off;
};

/* Load the programs for a target and a plan. */
int engine_load(struct engine *engine, const struct plan *plan, const struct target *target,
		const struct settings *settings);

/* Attach what is always on, then everything of a level. */
int engine_attach(struct engine *engine, const struct plan *plan, const struct target *target,
		  int level);

/*
 * Attach and detach until exactly what a level needs is on; -1: no samples either. Nothing is
 * allocated. Above `handshake` either all sites of the plan are on or none.
 */
int engine_go(struct engine *engine, const struct plan *plan, const struct target *target,
	      int level);

/*
 * Probe the dense sites or leave them alone, now and whenever a dense level is gone to. Events of
 * the scheduler and of sockets are not changed, so their ledger tells phases no more.
 */
int engine_set_traps(struct engine *engine, const struct plan *plan, const struct target *target,
		     bool on);

void engine_detach(struct engine *engine);

int engine_set_control(struct engine *engine);

/* Fail with what the kernel and libbpf say. */
int engine_refused(const char *what, int error);

/* Between two windows: accounts of threads that found no room, CPUs that came online. */
void engine_keep_up(struct engine *engine, const struct target *target);

/* Walk the stacks of one wait in `share` (a power of two) from now on. */
void engine_set_wait_share(struct engine *engine, u32 share);

void engine_read_lifecycle(const struct engine *engine, struct lifecycle *lifecycle);

/* Accounts that have ended so far: while it stays the same, no slot waits to be given back. */
u64 engine_ended_count(const struct engine *engine);

/* Whether another thread could have an account. */
bool engine_has_room(const struct engine *engine);

/* An attached iterator over a process, 0: over all. NULL: an error. */
struct bpf_link *engine_iterator(const struct engine *engine, const char *name, int pid);

/* Tell the programs of level flow which ports the process listens on. */
int engine_note_ports(const struct engine *engine, int pid);

static inline bool uses_sockets(const struct engine *engine)
{
	return engine->is_covered || engine->is_flow;
}

/* Whether a program is at a place of socket_events.h. */
static inline bool engine_has_place(const struct engine *engine, u32 place)
{
	return uses_sockets(engine) && sockets_have(engine->features.sockets, place);
}

/* Run an iterator over all it iterates. */
int engine_iterate(struct bpf_link *iterator);

/* Sample the CPUs that are online and are not sampled yet. */
int sampler_attach(struct engine *engine, bool may_fail);

/* Those of CPUs that came or left since. */
void sampler_keep_up(struct engine *engine);

/* Take samples, or stop until the next call. */
void sampler_enable(bool on);

/* Attach the sites of the plan that belong to a group: traps, connections or rare ones. */
int uprobes_attach(struct engine *engine, const struct plan *plan, const struct target *target,
		   enum link_group links);

/* The wait_kind of ledger.h of each system call. */
void fill_wait_kinds(u8 kinds[MAX_SYSCALLS]);

/* The map of global data whose name ends so. */
struct bpf_map *object_data_map(const struct bpf_object *object, const char *suffix);
struct bpf_map *engine_data_map(const struct engine *engine, const char *suffix);

#endif

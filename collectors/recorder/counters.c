// SPDX-License-Identifier: GPL-2.0-only
/* CPUs, latencies, hits and programs: counters that only grow. */
#include <bpf/bpf.h>
#include <string.h>

#include "output.h"
#include "session.h"
#include "stream.h"
#include "totals.h"

#define counters (session->counters)

/*
 * What is counted in a phase's buckets is counted in an account, too: those of other phases need no
 * look. Not exactly at the same time: with `is_all` all are looked at.
 */
static bool put_latency(const struct engine *engine, bool is_all)
{
	static u64 sums[LATENCY_BUCKETS];
	u32 phases = is_all ? ~0U : session->accounts.counted_phases;

	for (u32 phase = 0; phase < PHASES; phase++) {
		if (!(phases >> phase & 1))
			continue;
		memset(sums, 0, sizeof(sums));
		for (u32 shard = 0; shard < engine->shards_count; shard++)
			for (u32 i = 0; i < LATENCY_BUCKETS; i++)
				sums[i] += engine->latency[shard].count[phase][i];
		for (u32 i = 0; i < LATENCY_BUCKETS; i++) {
			if (sums[i] == counters.latency[phase][i])
				continue;
			struct stream_latency *frame = output_put(STREAM_LATENCY, sizeof(*frame));
			if (!frame)
				return false;
			*frame = (struct stream_latency){phase, i, sums[i]};
			counters.latency[phase][i] = sums[i];
		}
	}
	session->accounts.counted_phases = 0;
	return true;
}

/* Hits of a site since counters_begin(). */
static struct stream_hits hits_of(const struct engine *engine, u32 site)
{
	const struct stream_hits *before = &counters.hits_before[site];
	struct stream_hits now = {site, -before->count, -before->begun, -before->healed};

	for (u32 shard = 0; shard < engine->shards_count; shard++) {
		now.count += engine->hits[shard].count[site];
		now.begun += engine->hits[shard].begun[site];
		now.healed += engine->hits[shard].healed[site];
	}
	return now;
}

static bool put_hits(const struct engine *engine)
{
	for (u32 site = 0; site < MAX_SITES; site++) {
		struct stream_hits now = hits_of(engine, site);
		if (now.count == counters.hits[site].count &&
		    now.begun == counters.hits[site].begun &&
		    now.healed == counters.hits[site].healed)
			continue;
		struct stream_hits *frame = output_put(STREAM_HITS, sizeof(*frame));
		if (!frame)
			return false;
		*frame = counters.hits[site] = now;
	}
	return true;
}

static bool put_cpus(const struct engine *engine)
{
	for (u32 i = 0; i < engine->cpus_count; i++) {
		const struct cpu_counts *cpu = &engine->cpus[i];
		struct stream_cpu now = {i, cpu->target_cpu_ns + cpu->running_ns,
					 cpu->sample_count};
		if (now.target_cpu_ns == counters.cpus[i].target_cpu_ns &&
		    now.sample_count == counters.cpus[i].sample_count)
			continue;
		struct stream_cpu *frame = output_put(STREAM_CPU, sizeof(*frame));
		if (!frame)
			return false;
		*frame = counters.cpus[i] = now;
	}
	return true;
}

void programs_read(const struct engine *engine)
{
	for (u32 i = 0; i < engine->programs_count; i++) {
		struct bpf_prog_info info = {0};
		u32 length = sizeof(info);
		int fd = bpf_program__fd(engine->programs[i].program);
		bool is_loaded = fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &length);
		counters.programs[i].is_loaded = is_loaded;
		counters.programs[i].run_ns = info.run_time_ns;
		counters.programs[i].run_count = info.run_cnt;
		counters.programs[i].missed_count = info.recursion_misses;
	}
}

static bool put_programs(const struct engine *engine)
{
	counters.missed_count = 0;
	for (u32 i = 0; i < engine->programs_count; i++) {
		const struct engine_program *program = &engine->programs[i];
		if (!counters.programs[i].is_loaded)
			continue;
		struct stream_program *frame = output_put(STREAM_PROGRAM, sizeof(*frame));
		if (!frame)
			return false;
		strncpy(frame->name, program->name, sizeof(frame->name) - 1);
		frame->run_ns = counters.programs[i].run_ns - counters.runs_before[i].ns;
		frame->run_count = counters.programs[i].run_count - counters.runs_before[i].count;
		frame->missed_count = counters.programs[i].missed_count;
		if (strcmp(program->name, "on_sample") != 0)
			counters.missed_count += frame->missed_count;
	}
	return true;
}

void counters_begin(const struct engine *engine)
{
	for (u32 site = 0; site < MAX_SITES; site++) {
		counters.hits_before[site] = (struct stream_hits){0};
		counters.hits_before[site] = hits_of(engine, site);
	}
	programs_read(engine);
	for (u32 i = 0; i < engine->programs_count; i++) {
		counters.runs_before[i].ns = counters.programs[i].run_ns;
		counters.runs_before[i].count = counters.programs[i].run_count;
	}
}

bool counters_put(struct engine *engine, bool has_counts, bool is_all)
{
	return (!has_counts || put_cpus(engine)) && put_latency(engine, is_all) &&
	       put_hits(engine) && put_programs(engine);
}

u64 missed_runs(void)
{
	return counters.missed_count;
}

void counters_forget(void)
{
	memset(counters.latency, 0, sizeof(counters.latency));
	session->accounts.counted_phases = ~0U;
	memset(counters.hits, 0, sizeof(counters.hits));
	memset(counters.cpus, 0, sizeof(counters.cpus));
}

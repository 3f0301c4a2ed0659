// SPDX-License-Identifier: GPL-2.0-only
#include "metering.h"

#include <bpf/bpf.h>
#include <string.h>
#include <unistd.h>

#include "call_price.h"
#include "session.h"
#include "watchdog.h"

#define meter (session->meter)
#define MOST_OF 0.9

enum kind { KIND_SCHEDULER, KIND_SAMPLE, KIND_ENTER, KIND_LEAVE };

static enum kind kind_of(const char *name)
{
	return !strcmp(name, "on_sample")  ? KIND_SAMPLE
	       : !strcmp(name, "on_enter") ? KIND_ENTER
	       : !strcmp(name, "on_leave") ? KIND_LEAVE
					   : KIND_SCHEDULER;
}

/* The lowest level at which a site is probed. */
static int level_of(const struct plan_site *site, int most)
{
	if (!site->is_dense)
		return site->lowest;
	int level = COOKIE_ACTION(site->cookie) == ACTION_PHASE ? LEVEL_RECORD : LEVEL_COMMAND;
	return level < most ? level : most;
}

void meter_prepare(const struct engine *engine, const struct plan *plan,
		   const struct target *target)
{
	meter.target_clock.clock = process_clock(target->pid);
	if (!meter.usual_in_situ) /* else it was looked at before the recording */
		meter.usual_in_situ = IN_SITU_COLD;
	for (u32 i = 0; i < engine->programs_count; i++)
		meter.kinds[i] = kind_of(engine->programs[i].name);
	for (u32 i = 0; i < plan->sites_count; i++)
		meter.levels[i] = level_of(&plan->sites[i], engine->settings.level);
}

void meter_count_reader(int pid)
{
	meter.reader_pid = pid;
	meter.reader_read_ns = pid ? clock_ns(process_clock(pid)) : 0;
}

/* The targets that are recorded and have that reader, too. */
static u32 readers_count(void)
{
	u32 count = 0;

	for (u32 i = 0; i < sessions_count(); i++)
		count += session_of(i)->progress == PROGRESS_RECORDING &&
			 session_of(i)->options.reader == session->options.reader;
	return count ? count : 1;
}

u64 meter_reader_ns(void)
{
	u64 now_ns = meter.reader_pid ? clock_ns(process_clock(meter.reader_pid)) : 0;

	if (now_ns > meter.reader_read_ns) { /* 0 after it has ended */
		meter.reader_ns += (now_ns - meter.reader_read_ns) / readers_count();
		meter.reader_read_ns = now_ns;
	}
	return meter.reader_ns;
}

void meter_read(struct reading *reading, bool goes_on)
{
	for (u32 site = 0; site < session->plan.sites_count; site++) {
		reading->hits[site] = 0;
		for (u32 shard = 0; shard < session->engine.shards_count; shard++)
			reading->hits[site] += session->engine.hits[shard].count[site];
	}
	reading->events = 0;
	for (u32 cpu = 0; cpu < session->engine.cpus_count; cpu++)
		reading->events += session->engine.cpus[cpu].event_count;
	reading->sends = 0;
	for (u32 shard = 0; shard < session->engine.shards_count; shard++)
		reading->sends += session->engine.hits[shard].sends;
	programs_read(&session->engine);
	for (u32 i = 0; i < session->engine.programs_count; i++) {
		reading->run_ns[i] = session->counters.programs[i].run_ns;
		reading->run_count[i] = session->counters.programs[i].run_count;
	}
	reading->target_cpu_ns = target_clock_read(&meter.target_clock, &session->engine, goes_on);
	reading->own_cpu_ns = session_cpu_ns() + meter_reader_ns();
	reading->time_ns = monotonic_ns();
	reading->timed_ns = meter.timed_ns;
	if (statistics_are_on())
		reading->timed_ns += reading->time_ns - meter.timed_since_ns;
}

/* Whether the kernel timed the programs, but for attaching or detaching at either end. */
static bool was_timed(const struct reading *before, const struct reading *after)
{
	double timed_ns = (double)(after->timed_ns - before->timed_ns);

	return timed_ns > 0 && timed_ns >= MOST_OF * (double)(after->time_ns - before->time_ns);
}

/* Run time and runs of the programs of a kind between two readings. */
static double runs_of(enum kind kind, const struct reading *before, const struct reading *after,
		      u64 *runs)
{
	u64 run_ns = 0;

	*runs = 0;
	for (u32 i = 0; i < session->engine.programs_count; i++)
		if (meter.kinds[i] == kind) {
			run_ns += after->run_ns[i] - before->run_ns[i];
			*runs += after->run_count[i] - before->run_count[i];
		}
	return (double)run_ns;
}

#define USE_LOOK_NS (100 * NS_PER_MS) /* in less time its use of CPUs is chance */

double meter_in_situ(void)
{
	if (meter.whole_price.in_situ > 0) /* the same in its stretches and in windows */
		return meter.whole_price.in_situ;
	return meter.hit_price.is_measured ? meter.hit_price.factor : meter.usual_in_situ;
}

void meter_arm(const struct reading *before, const struct reading *after, struct price_arm *arm)
{
	u64 runs;

	*arm = (struct price_arm){
		.cpu_ns = (double)after->target_cpu_ns - (double)before->target_cpu_ns,
		.sends = (double)(after->sends - before->sends),
		.bodies_ns = runs_of(KIND_ENTER, before, after, &runs) +
			     runs_of(KIND_LEAVE, before, after, &runs),
	};
	for (u32 i = 0; i < session->plan.sites_count; i++) {
		double hits = (double)(after->hits[i] - before->hits[i]);
		arm->hits += hits;
		arm->loop_ns += hits * session->plan.sites[i].price_ns;
	}
}

/*
 * The run times of programs scatter: one of some hundred runs has an interrupt in it. Spans
 * overlap, as windows are looked at before they end: each run counts once.
 */
static void learn_bodies(const struct reading *now)
{
	static const struct reading nothing;
	u64 runs;

	for (int i = 0; i < 2; i++) {
		double run_ns = runs_of(i ? KIND_LEAVE : KIND_ENTER, &nothing, now, &runs);
		double more_ns = run_ns - meter.learned_ns[i];
		double more = (double)runs - meter.learned_runs[i];
		double known = meter.body_runs[i] + more;
		if (more <= 0)
			continue;
		meter.body_ns[i] += (more_ns - meter.body_ns[i] * more) / known;
		meter.body_runs[i] = known < BODY_RUNS_MOST ? known : BODY_RUNS_MOST;
		meter.learned_ns[i] = run_ns;
		meter.learned_runs[i] = (double)runs;
	}
}

/* The part of these runs at events of other processes, for which programs return at once. */
static double others_of(const struct reading *before, const struct reading *after, u64 runs)
{
	u32 own = after->events - before->events;

	return runs > own ? (double)(runs - own) : 0;
}

static double neighbours_cost(const struct reading *before, const struct reading *after, u64 runs,
			      double run_ns)
{
	double others = others_of(before, after, runs);
	double mean_ns = run_ns / (double)runs + call_price()->call_ns;
	double idle_ns = IDLE_IN_SITU * call_price()->idle_ns;

	return others * (mean_ns < idle_ns ? mean_ns : idle_ns);
}

/*
 * What the programs cost while the target is almost idle does not tell that of its busy time, so a
 * rate needs some CPU time of the target. What other processes' events cost is per time.
 */
static void scheduler_cost(const struct reading *before, const struct reading *after, int level,
			   struct span *span, double floor_ns)
{
	double cpu_ns = (double)span->target_cpu_ns, length_ns = (double)span->length_ns;
	u64 runs;
	double run_ns = runs_of(KIND_SCHEDULER, before, after, &runs);
	double neighbours_ns = runs ? neighbours_cost(before, after, runs, run_ns) : 0;
	double own_ns = run_ns + call_price()->call_ns * (double)runs - neighbours_ns;

	bool is_timed = was_timed(before, after);

	if (runs && is_timed && has_ledger(level)) {
		if (cpu_ns >= floor_ns || !meter.is_rate_of_load) {
			meter.is_rate_of_load = cpu_ns >= floor_ns;
			meter.scheduler_rate = own_ns / (meter.is_rate_of_load ? cpu_ns : floor_ns);
		}
		if (length_ns > 0)
			meter.neighbour_rate = neighbours_ns / length_ns;
	}
	bool is_known = is_timed || !has_ledger(level);
	span->spent.scheduler_ns = is_known ? own_ns : meter.scheduler_rate * cpu_ns;
	span->spent.neighbours_ns = is_known ? neighbours_ns : meter.neighbour_rate * length_ns;
	if (is_timed) {
		double others = others_of(before, after, runs);
		span->spent.scheduler_ns += ((double)runs - others) * call_price()->timed_ns;
		span->spent.neighbours_ns += others * call_price()->timed_ns;
	}
}

static double sample_cost(const struct reading *before, const struct reading *after, int level,
			  u64 length_ns)
{
	u64 runs;
	double run_ns = runs_of(KIND_SAMPLE, before, after, &runs);
	double ticks = level == LEVEL_NONE ? 0
					   : (double)session->engine.settings.sample_hz *
						     (double)session->engine.online_count *
						     (double)length_ns / (double)NS_PER_S;

	if (runs && ticks > 0 && was_timed(before, after)) /* statistics are the host's */
		meter.tick_ns = run_ns / ticks;
	return ticks * meter.tick_ns;
}

/* Prices as they were measured in the target, all together. */
static void as_measured(u32 events, struct span *span)
{
	const struct whole_price *whole = &meter.whole_price;

	if (whole->is_server_used) {
		for (int i = 0; i < LEVELS; i++)
			span->by_level_ns[i] *= whole->ratio;
		span->spent.probes_ns *= whole->ratio;
		span->spent.scheduler_ns *= whole->ratio;
	}
	if (whole->is_host_used)
		span->spent.neighbours_ns = whole->event_ns * events;
}

void meter_span(const struct reading *before, const struct reading *after, int level,
		struct span *span)
{
	*span = (struct span){
		.length_ns = after->time_ns - before->time_ns,
		/* 0 after the target has ended */
		.target_cpu_ns = after->target_cpu_ns > before->target_cpu_ns
					 ? after->target_cpu_ns - before->target_cpu_ns
					 : 0,
	};
	double floor_ns = FLOOR_CPUS * (double)span->length_ns;
	if (span->length_ns >= USE_LOOK_NS)
		meter.usual_in_situ =
			usual_in_situ((double)span->target_cpu_ns / (double)span->length_ns);
	double in_situ = meter_in_situ();
	double timed_ns = was_timed(before, after) ? call_price()->timed_ns : 0;
	learn_bodies(after);
	for (u32 i = 0; i < session->plan.sites_count; i++) {
		double price_ns = session->plan.sites[i].price_ns * in_situ +
				  meter.body_ns[session->plan.sites[i].is_exit] + timed_ns;
		double hits = (double)(after->hits[i] - before->hits[i]);
		span->by_level_ns[meter.levels[i]] += hits * price_ns;
		span->spent.probes_ns += hits * price_ns;
	}
	scheduler_cost(before, after, level, span, floor_ns);
	as_measured(after->events - before->events, span);
	span->spent.samples_ns = sample_cost(before, after, level, span->length_ns);
	span->spent.recorder_ns = (double)(after->own_cpu_ns - before->own_cpu_ns);
}

void meter_load(const struct span *span, struct load *load)
{
	double cpu_ns = (double)span->target_cpu_ns;
	double length_ns = span->length_ns ? (double)span->length_ns : 1;

	*load = (struct load){
		.cpus = cpu_ns / length_ns,
		.samples = span->spent.samples_ns / length_ns,
		.scheduler = cpu_ns > 0 ? span->spent.scheduler_ns / cpu_ns : 0,
		.neighbours = span->spent.neighbours_ns / length_ns,
	};
	for (int i = 0; i < LEVELS && cpu_ns > 0; i++) {
		load->probes[i] = span->by_level_ns[i] / cpu_ns;
		load->known_ns[i] = length_ns;
	}
}

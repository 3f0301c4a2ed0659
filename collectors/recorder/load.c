// SPDX-License-Identifier: GPL-2.0-only
/* The load of a target, and what recording it costs: of the trial, and learned from each window. */
#include "budget.h"

#define NS ((double)NS_PER_S)
#define SHORT_PART 0.3 /* of the weight that a window of a second has, at least */

static double larger(double one, double other)
{
	return one > other ? one : other;
}

double load_base(const struct load *load)
{
	return larger(load->cpus, budget_floor());
}

struct overhead load_running(const struct load *load, int level)
{
	double used_ns = load->cpus * NS;
	struct overhead running = {.recorder_ns = load->watch * NS};

	if (is_read_by_time(level))
		running.recorder_ns += load->reading * used_ns;
	if (level == LEVEL_NONE)
		return running;
	for (int i = 0; i <= level; i++)
		running.probes_ns += load->probes[i] * used_ns;
	running.scheduler_ns = has_ledger(level) ? load->scheduler * used_ns : 0;
	running.neighbours_ns = has_ledger(level) ? load->neighbours * NS : 0;
	running.samples_ns = load->samples * NS;
	return running;
}

double window_fixed(const struct load *load, int dense)
{
	return 2 * load->cut_ns + (has_ledger(dense) ? load->read_ns : 0) + load->turn_ns;
}

double window_cost(const struct load *load, int dense, int light, u64 dense_ns)
{
	struct overhead on = load_running(load, dense), off = load_running(load, light);
	double on_s = ((double)dense_ns + load->tail_ns) / NS;

	return (overhead_total(&on) - overhead_total(&off)) * on_s + window_fixed(load, dense);
}

static void take_lesser(double *value, double other)
{
	*value = other < *value ? other : *value;
}

void trials_join(struct load *load, const struct load *other)
{
	load->cpus = (load->cpus + other->cpus) / 2;
	take_lesser(&load->scheduler, other->scheduler);
	take_lesser(&load->neighbours, other->neighbours);
	take_lesser(&load->samples, other->samples);
	for (int i = 0; i < LEVELS; i++) {
		take_lesser(&load->probes[i], other->probes[i]);
		load->known_ns[i] += other->known_ns[i];
	}
}

void spans_join(struct span *span, const struct span *other)
{
	span->length_ns += other->length_ns;
	span->target_cpu_ns += other->target_cpu_ns;
	span->spent.probes_ns += other->spent.probes_ns;
	span->spent.scheduler_ns += other->spent.scheduler_ns;
	span->spent.neighbours_ns += other->spent.neighbours_ns;
	span->spent.samples_ns += other->spent.samples_ns;
	span->spent.recorder_ns += other->spent.recorder_ns;
	for (int i = 0; i < LEVELS; i++)
		span->by_level_ns[i] += other->by_level_ns[i];
}

static void blend(double *rate, double cost_ns, double cpu_ns, double weight)
{
	*rate += weight * (cost_ns / cpu_ns - *rate);
}

void load_learn(struct load *load, int level, const struct span *span, double weight)
{
	double cpu_ns = (double)span->target_cpu_ns, length_ns = (double)span->length_ns;
	double part = length_ns < NS ? length_ns / NS : 1;

	if (!span->length_ns)
		return;
	load->cpus += part * (cpu_ns / length_ns - load->cpus);
	if (has_ledger(level))
		load->neighbours +=
			weight * (span->spent.neighbours_ns / length_ns - load->neighbours);
	if (cpu_ns <= 0)
		return;
	for (int i = 0; i <= level; i++) { /* a short window has few connections */
		double usual = i <= LEVEL_CONNECTION ? weight * larger(part, SHORT_PART) : weight;
		load->known_ns[i] += length_ns;
		if (i == LEVEL_SAMPLE)
			load->samples += larger(usual, length_ns / load->known_ns[i]) *
					 (span->spent.samples_ns / length_ns - load->samples);
		blend(&load->probes[i], span->by_level_ns[i], cpu_ns,
		      larger(usual, length_ns / load->known_ns[i]));
	}
	if (has_ledger(level))
		blend(&load->scheduler, span->spent.scheduler_ns, cpu_ns, weight);
}

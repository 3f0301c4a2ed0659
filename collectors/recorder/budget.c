// SPDX-License-Identifier: GPL-2.0-only
#include "budget.h"

#include "failure.h"

#define NS ((double)NS_PER_S)
#define MARGIN 0.85 /* plans use this much; the rest is for a load that rises between two looks */
#define SPARE 0.7   /* everything must cost this much less before a recording stops alternating */
#define LIGHT_SHARE 0.75     /* of that for light time; the rest is for dense windows */
#define HANDSHAKE_SHARE 0.6  /* of that for all operations of handshakes */
#define CONNECTION_SHARE 0.5 /* of that for what only tells which connections ended, too */
#define FEW_CPUS 0.5 /* below, each handshake counts: dense windows would have too few of them */
#define CLOSE_MARGIN 0.95 /* and this much if all handshakes need it */
#define CLOSE_SHARE 0.95
#define FIXED_SHARE 0.5 /* of a dense window's events: what it costs to make it, if possible */
#define FIRST_WINDOWS 5 /* a range over windows needs four: the first ones are short */
#define FIRST_LONGEST_NS (500 * NS_PER_MS)
#define EASY_CYCLE_NS (10 * NS_PER_S) /* windows get shorter rather than rarer than that */
#define LONGEST_CYCLE_NS (30 * NS_PER_S)
#define MOST_SAVED_NS (10 * NS) /* no long burst after a quiet night */

/* Lengths of a dense window: the usual one, shorter ones, and longer ones, each best first. */
static const u64 usual_ns[] = {100 * NS_PER_MS, 50 * NS_PER_MS, 20 * NS_PER_MS};
static const u64 longer_ns[] = {200 * NS_PER_MS, 500 * NS_PER_MS, NS_PER_S, 2 * NS_PER_S};

/* Lengths of windows when everything is always on, in windows as asked for. */
static const u32 multiples[] = {1, 2, 5, 10};

static double floor_cpus = FLOOR_CPUS;

void budget_set_floor(double cpus)
{
	floor_cpus = cpus;
}

double budget_floor(void)
{
	return floor_cpus;
}

static double larger(double one, double other)
{
	return one > other ? one : other;
}

double overhead_total(const struct overhead *overhead)
{
	return overhead->probes_ns + overhead->scheduler_ns + overhead->neighbours_ns +
	       overhead->samples_ns + overhead->recorder_ns;
}

struct choice budget_everything(const struct load *load, int level, u64 window_ns)
{
	struct choice choice = {level, LEVEL_NONE, window_ns, window_ns, load_running(load, level)};

	double end_ns = load->cut_ns + (has_ledger(level) ? load->read_ns : 0);
	choice.predicted.recorder_ns += end_ns * NS / (double)window_ns;
	return choice;
}

static bool fits(const struct choice *choice, double limit_ns)
{
	return overhead_total(&choice->predicted) <= limit_ns;
}

/* The shortest windows that fit when a level is on all the time. */
static bool choose_continuous(const struct load *load, int level, u64 window_ns, double limit_ns,
			      struct choice *choice)
{
	for (u32 i = 0; i < COUNT(multiples); i++) {
		u64 length_ns = window_ns * multiples[i];
		if (i && length_ns > LONGEST_WINDOW_NS)
			length_ns = larger((double)window_ns, LONGEST_WINDOW_NS);
		*choice = budget_everything(load, level, length_ns);
		if (fits(choice, limit_ns))
			return true;
	}
	return false;
}

/* Dense windows of a length, as often as the budget allows. */
static double alternating(const struct load *load, double limit_ns, u64 dense_ns,
			  struct choice *choice)
{
	struct overhead running = load_running(load, choice->light);
	struct overhead on = load_running(load, choice->dense);
	double one_ns = window_cost(load, choice->dense, choice->light, dense_ns);
	double cycle_ns = one_ns / (limit_ns - overhead_total(&running)) * NS + 1;
	double on_s = ((double)dense_ns + load->tail_ns) / NS;

	if (cycle_ns < (double)dense_ns)
		cycle_ns = (double)dense_ns;
	double windows = NS / cycle_ns;
	choice->dense_ns = dense_ns;
	choice->cycle_ns = cycle_ns < (double)LONGEST_CYCLE_NS ? (u64)cycle_ns : LONGEST_CYCLE_NS;
	choice->predicted = running;
	choice->predicted.probes_ns += (on.probes_ns - running.probes_ns) * on_s * windows;
	choice->predicted.scheduler_ns += (on.scheduler_ns - running.scheduler_ns) * on_s * windows;
	choice->predicted.neighbours_ns +=
		(on.neighbours_ns - running.neighbours_ns) * on_s * windows;
	choice->predicted.samples_ns += (on.samples_ns - running.samples_ns) * on_s * windows;
	choice->predicted.recorder_ns += window_fixed(load, choice->dense) * windows;
	return cycle_ns;
}

/* Whether most of a dense window's cost is that of making it: a longer one is then better. */
static bool is_fixed(const struct load *load, const struct choice *choice)
{
	double fixed_ns = window_fixed(load, choice->dense);
	double one_ns = window_cost(load, choice->dense, choice->light, choice->dense_ns);

	return fixed_ns > FIXED_SHARE * (one_ns - fixed_ns);
}

/* Dense windows with light time; false: they would be further apart than `easy_ns`, and the
 * shortest ones further than the longest cycle. */
static bool choose_alternating(const struct load *load, int dense, int light, double limit_ns,
			       u64 easy_ns, struct choice *choice)
{
	struct overhead running = load_running(load, light);
	struct choice longer = {.dense = dense, .light = light};

	*choice = longer;
	if (overhead_total(&running) >= limit_ns)
		return false;
	for (u32 i = 0; i < COUNT(usual_ns); i++) {
		bool is_last = i == COUNT(usual_ns) - 1 && light != LEVEL_NONE;
		double cycle_ns = alternating(load, limit_ns, usual_ns[i], choice);
		if (cycle_ns > (double)(is_last ? LONGEST_CYCLE_NS : easy_ns))
			continue;
		for (u32 k = 0; !i && k < COUNT(longer_ns) && is_fixed(load, choice); k++) {
			if (load->dense_count < FIRST_WINDOWS && longer_ns[k] > FIRST_LONGEST_NS)
				break;
			if (alternating(load, limit_ns, longer_ns[k], &longer) > (double)easy_ns)
				break;
			*choice = longer;
		}
		return true;
	}
	return false;
}

/* Dense windows of the highest level, with a lower one between them that uses a part of what there
 * is. */
static bool choose_light(const struct load *load, int most, int light, double limit_ns, double part,
			 u64 easy_ns, struct choice *choice)
{
	struct overhead running = load_running(load, light);

	return light < most &&
	       (light == LEVEL_NONE || overhead_total(&running) <= part * limit_ns) &&
	       choose_alternating(load, most, light, limit_ns, easy_ns, choice);
}

/* All handshakes of a lightly loaded target, though that leaves little for dense windows. */
static bool choose_handshakes(const struct load *load, double share, int most,
			      struct choice *choice)
{
	static const double margins[] = {MARGIN, CLOSE_MARGIN};

	for (u32 i = 0; i < COUNT(margins) && load->cpus <= FEW_CPUS; i++)
		if (choose_light(load, most, LEVEL_SIGNATURE,
				 share * margins[i] * load_base(load) * NS, CLOSE_SHARE,
				 LONGEST_CYCLE_NS, choice))
			return true;
	return false;
}

bool budget_choose(const struct load *load, double share, int most, u64 window_ns, bool alternates,
		   struct choice *choice)
{
	static const int lights[] = {LEVEL_CONNECTION, LEVEL_HANDSHAKE, LEVEL_SIGNATURE,
				     LEVEL_SAMPLE, LEVEL_NONE};
	static const double shares[] = {CONNECTION_SHARE, HANDSHAKE_SHARE, LIGHT_SHARE, LIGHT_SHARE,
					LIGHT_SHARE};
	double limit_ns = share * MARGIN * load_base(load) * NS;

	if (choose_continuous(load, most, window_ns, limit_ns * (alternates ? SPARE : 1), choice))
		return true;
	for (u32 i = 0; i < COUNT(lights); i++) {
		if (lights[i] == LEVEL_SAMPLE && choose_handshakes(load, share, most, choice))
			return true;
		if (choose_light(load, most, lights[i], limit_ns, shares[i], EASY_CYCLE_NS, choice))
			return true;
	}
	for (int level = most - 1; level >= LEVEL_SAMPLE; level--) {
		/* The programs of a plan tell commands either by sockets or by probes. Without a
		 * ledger nobody asks which connections ended. */
		if (level == LEVEL_FLOW || level == LEVEL_CONNECTION)
			continue;
		*choice = budget_everything(load, level,
					    (u64)larger((double)window_ns, LONGEST_WINDOW_NS));
		if (fits(choice, limit_ns))
			return true;
	}
	return false;
}

bool budget_keeps(const struct load *load, double share, const struct choice *before,
		  struct choice *choice)
{
	struct overhead running = load_running(load, LEVEL_SIGNATURE);

	if (before->light < LEVEL_SIGNATURE || choice->light >= LEVEL_SIGNATURE ||
	    load->cpus > FEW_CPUS || overhead_total(&running) > share * load_base(load) * NS)
		return false;
	*choice = *before;
	choice->light = LEVEL_SIGNATURE;
	choice->cycle_ns = LONGEST_CYCLE_NS;
	choice->predicted = running;
	return true;
}

bool trial_overspends(const struct span *span, double share)
{
	double length_ns = span->length_ns ? (double)span->length_ns : 1;
	double cpus = larger((double)span->target_cpu_ns / length_ns, floor_cpus);

	return overhead_total(&span->spent) > share * cpus * NS;
}

bool trial_is_doubtful(const struct load *load, double share, int most, u64 window_ns)
{
	struct choice choice;

	if (load->cpus > FEW_CPUS || most < LEVEL_SIGNATURE)
		return false;
	return !budget_choose(load, share, most, window_ns, false, &choice) ||
	       (!is_continuous(&choice) && choice.light < LEVEL_SIGNATURE) ||
	       choice.dense < LEVEL_SIGNATURE;
}

void budget_refuse(const struct load *load, double share)
{
	struct choice least = budget_everything(load, LEVEL_SAMPLE, LONGEST_WINDOW_NS);
	double base_ns = load_base(load) * NS;
	double needed = overhead_total(&least.predicted) / (base_ns * MARGIN) * 1000;
	u64 tenths = (u64)needed + ((double)(u64)needed < needed);

	fail(EXIT_CODE_BUDGET,
	     "nothing can be recorded for %g%% of the server's CPU time: the server uses %.2f CPUs "
	     "(less than %g counts as that), so the budget is %.2f ms a second, and CPU samples "
	     "alone would cost %.2f ms and the recorder %.2f ms. Allow --budget %g%%, or take "
	     "fewer samples (--sample-hz)",
	     share * 100, load->cpus, floor_cpus, share * base_ns / 1e6,
	     least.predicted.samples_ns / 1e6, least.predicted.recorder_ns / 1e6,
	     (double)tenths / 10);
}

void account_settle(struct account *account, const struct span *span)
{
	double length_ns = (double)span->length_ns;
	double earned_ns =
		account->share * larger((double)span->target_cpu_ns, floor_cpus * length_ns);
	double most_ns =
		length_ns > 0 ? earned_ns / length_ns * MOST_SAVED_NS : account->balance_ns;

	account->balance_ns += earned_ns - overhead_total(&span->spent);
	if (account->balance_ns > larger(0, most_ns))
		account->balance_ns = larger(0, most_ns);
}

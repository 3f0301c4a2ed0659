// SPDX-License-Identifier: GPL-2.0-only
#include "pace.h"

#define WATCH_NS (2 * NS_PER_S) /* how often continuous recording is looked at */
#define LONGEST_LIGHT_NS (10 * NS_PER_S)
#define SHORTEST_LIGHT_NS (500 * NS_PER_MS)
#define JITTER 0.2
#define WAIT_MORE 1.3 /* than the credit needs: ending too early costs another light window */
#define SURPRISE 1.5  /* a dense window ends when it costs this many times what was expected */
#define SLACK_NS (500 * NS_PER_MS) /* what continuous recording may owe, in credit */
#define LEAST_CPUS 0.01		   /* of a target whose handshakes tell what reading them takes */
#define NEW_RATE 0.3		   /* weight of a window's rates against those before it */
#define NEW_COST 0.3		   /* the same for the costs of the recorder */

enum { WATCHES = 2, DOUBLINGS_MOST = 6 };

static double larger(double one, double other)
{
	return one > other ? one : other;
}

static void take(double *mean, double value)
{
	if (value >= 0)
		*mean = *mean ? *mean + NEW_COST * (value - *mean) : value;
}

/* A number from -1 to 1 (xorshift64*). */
static double varied(struct pace *pace)
{
	pace->random ^= pace->random >> 12;
	pace->random ^= pace->random << 25;
	pace->random ^= pace->random >> 27;
	u64 number = pace->random * 0x2545f4914f6cdd1dULL;
	return (double)(number >> 11) / (double)(1ULL << 52) - 1;
}

void pace_open(struct pace *pace, double share, int most, u64 window_ns, u64 seed)
{
	*pace = (struct pace){
		.most = most,
		.window_ns = window_ns,
		.account.share = share,
		.step = {most, TRIAL_NS, TRIAL_NS},
		.read.level = LEVEL_NONE,
		.allowance_ns = -1,
		.random = seed + 0x9e3779b97f4a7c15ULL,
	};
}

static double income(const struct pace *pace)
{
	return pace->account.share * load_base(&pace->load);
}

static struct step dense(struct pace *pace, double allowance_ns)
{
	const struct choice *choice = &pace->choice;

	pace->allowance_ns = allowance_ns;
	pace->rests = 0;
	return (struct step){choice->dense, choice->dense_ns,
			     is_continuous(choice) ? WATCH_NS : choice->dense_ns / WATCHES};
}

static struct step rest(struct pace *pace, int level, double length)
{
	u64 length_ns = length < LONGEST_LIGHT_NS ? (u64)length : LONGEST_LIGHT_NS;

	if (length_ns < SHORTEST_LIGHT_NS)
		length_ns = SHORTEST_LIGHT_NS;
	pace->allowance_ns = -1;
	pace->rests++;
	return (struct step){level, length_ns, level == LEVEL_NONE ? length_ns : WATCH_NS};
}

/* How long until the account holds the missing credit, with a level on. */
static double wait_ns(const struct pace *pace, int level, double lacking_ns)
{
	struct overhead running = load_running(&pace->load, level);
	double earned = income(pace) - overhead_total(&running) / (double)NS_PER_S;
	u32 doublings = pace->rests < DOUBLINGS_MOST ? pace->rests : DOUBLINGS_MOST;
	/* Each light window has overhead, too: the longer it takes, the fewer there should be. */
	double least_ns = (double)(SHORTEST_LIGHT_NS << doublings);

	lacking_ns += pace->load.cut_ns; /* of the light window itself */
	return larger(earned > 0 ? WAIT_MORE * lacking_ns / earned : (double)LONGEST_LIGHT_NS,
		      least_ns);
}

/* What is on while a recording without light time pauses. */
static int below(int level)
{
	return level > LEVEL_SIGNATURE ? LEVEL_SIGNATURE : level - 1;
}

static struct step next(struct pace *pace, bool was_dense)
{
	const struct choice *choice = &pace->choice;
	const struct load *load = &pace->load;

	if (!pace->has_choice)
		return rest(pace, LEVEL_NONE, LONGEST_LIGHT_NS);
	if (is_continuous(choice)) {
		double behind_ns = -pace->account.balance_ns;
		if (behind_ns <= income(pace) * (double)SLACK_NS)
			return dense(pace, -1);
		int lower = below(choice->dense);
		return rest(pace, lower, wait_ns(pace, lower, behind_ns));
	}
	double one_ns = window_cost(load, choice->dense, choice->light, choice->dense_ns);
	double lacking_ns = one_ns - pace->account.balance_ns;
	if (lacking_ns <= 0 && !was_dense)
		return dense(pace, SURPRISE * one_ns);
	double length_ns = wait_ns(pace, choice->light, lacking_ns);
	if (was_dense) {
		length_ns = larger(length_ns, (double)(choice->cycle_ns - choice->dense_ns));
		length_ns *= 1 + JITTER * varied(pace);
	}
	return rest(pace, choice->light, length_ns);
}

bool pace_begin(struct pace *pace, const struct load *load, const struct span *trial)
{
	pace->load = *load;
	pace->has_choice = budget_choose(load, pace->account.share, pace->most, pace->window_ns,
					 false, &pace->choice);
	account_settle(&pace->account, trial);
	return pace->has_choice;
}

struct step pace_first(struct pace *pace)
{
	return pace->step = next(pace, true);
}

static void learn_own(struct pace *pace, const struct span *span, const struct own_costs *own)
{
	struct load *load = &pace->load;

	take(&load->cut_ns, own->cut_ns);
	take(&load->turn_ns, own->turn_ns);
	if (span->length_ns >= WATCH_NS / 4) /* shorter ones are looked at more often */
		take(&load->watch, own->watch);
	/* A window is read while the next one goes on. */
	if (has_ledger(pace->read.level))
		take(&load->read_ns, own->read_ns);
	else if (is_read_by_time(pace->read.level) && pace->read.length_ns >= WATCH_NS) {
		double least_ns = LEAST_CPUS * (double)pace->read.length_ns;
		load->reading = pace->knows_reading ? load->reading : 0;
		take(&load->reading, own->read_ns / larger((double)pace->read.cpu_ns, least_ns));
		pace->knows_reading = true;
	}
	pace->read.level = pace->step.level;
	pace->read.length_ns = span->length_ns;
	pace->read.cpu_ns = span->target_cpu_ns;
}

struct step pace_ended(struct pace *pace, const struct span *span, const struct own_costs *own)
{
	bool was_dense = pace->step.level == pace->most;
	bool alternates = !pace->has_choice || !is_continuous(&pace->choice);
	struct choice before = pace->choice;
	bool may_keep = pace->has_choice && alternates;

	account_settle(&pace->account, span);
	load_learn(&pace->load, pace->step.level, span, NEW_RATE);
	pace->load.dense_count += was_dense;
	learn_own(pace, span, own);
	pace->has_choice = budget_choose(&pace->load, pace->account.share, pace->most,
					 pace->window_ns, alternates, &pace->choice);
	if (may_keep && (!pace->has_choice || !is_continuous(&pace->choice)) &&
	    budget_keeps(&pace->load, pace->account.share, &before, &pace->choice))
		pace->has_choice = true;
	return pace->step = next(pace, was_dense);
}

bool pace_affords(const struct pace *pace, double cost_ns)
{
	double needed_ns = cost_ns < 0 ? income(pace) * (double)NS_PER_S : cost_ns;

	return pace->has_choice && is_continuous(&pace->choice) && pace->step.level == pace->most &&
	       pace->account.balance_ns >= needed_ns;
}

bool pace_overspends(const struct pace *pace, const struct span *span)
{
	double spent_ns = overhead_total(&span->spent);
	double floor_ns = budget_floor() * (double)span->length_ns, share = pace->account.share;

	if (pace->step.level == LEVEL_NONE)
		return false; /* there is nothing to drop */
	if (pace->allowance_ns >= 0)
		return spent_ns > pace->allowance_ns;
	double earned_ns = share * larger((double)span->target_cpu_ns, floor_ns);
	if (pace->has_choice && is_continuous(&pace->choice) && pace->step.level == pace->most)
		return spent_ns - earned_ns >
		       larger(0, pace->account.balance_ns) + income(pace) * (double)SLACK_NS;
	/* Light time must leave something over for the next dense window. Reading the window before
	 * it falls into it, too: to end it for that would take as much again. */
	double watch_ns = pace->load.watch * (double)span->length_ns;
	if (span->spent.recorder_ns > watch_ns)
		spent_ns -= span->spent.recorder_ns - watch_ns;
	return spent_ns > larger(earned_ns, share * budget_floor() * (double)NS_PER_S);
}

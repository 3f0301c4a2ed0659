// SPDX-License-Identifier: GPL-2.0-only
#include "levels.h"

#include <string.h>

#include "metering.h"

#define NS ((double)NS_PER_S)
#define ROOM 0.6	/* of the budget for events; the rest is for samples and the recorder */
#define EVENT_PART 0.2	/* a program at an event takes this part of a trap (0.08 of 0.4 us) */
#define OTHER_PART 0.5	/* at events of other processes it returns early */
#define BODY_PART 0.5	/* the program behind a trap */
#define TRAP_NS 400	/* where the plan has no price */
#define RUNS_A_SWITCH 3 /* the wake-up, the switch to the thread and the one away from it */
#define OTHER_RUNS_A_SWITCH 2
#define TRAPS_AN_ANSWER 2 /* where a command is executed, and where it is answered */

double plan_trap_ns(const struct plan *plan)
{
	double sum_ns[2] = {0};
	u32 count[2] = {0};

	for (u32 i = 0; i < plan->stretch_sites_count; i++) {
		const struct plan_site *site = &plan->stretch_sites[i];
		if (site->price_ns > 0) {
			sum_ns[site->is_dense] += site->price_ns;
			count[site->is_dense]++;
		}
	}
	bool has_dense = count[true] > 0;
	return count[has_dense] ? sum_ns[has_dense] / count[has_dense] : TRAP_NS;
}

void level_choose(const struct rates *rates, double trap_ns, double share, double floor_cpus,
		  struct level_choice *choice)
{
	double event = EVENT_PART * trap_ns;
	double own = RUNS_A_SWITCH * rates->own_switches + rates->own_receives + rates->own_sends;
	double other = OTHER_RUNS_A_SWITCH * rates->other_switches + rates->other_messages;
	double base_ns = (rates->cpus > floor_cpus ? rates->cpus : floor_cpus) * NS;
	double room_ns = ROOM * share * base_ns;
	double flow_ns = event * (own + OTHER_PART * other);
	double record_ns =
		flow_ns + TRAPS_AN_ANSWER * rates->own_sends * (IN_SITU + BODY_PART) * trap_ns;
	bool is_flow = record_ns > room_ns && flow_ns <= room_ns;

	*choice = (struct level_choice){
		.level = is_flow ? LEVEL_FLOW : LEVEL_RECORD,
		.base_ns = base_ns,
		.flow_ns = flow_ns,
		.record_ns = record_ns,
	};
}

void plan_for_record(struct plan *plan)
{
	plan->level = LEVEL_RECORD;
	memcpy(plan->sites, plan->stretch_sites, sizeof(plan->sites));
	plan->sites_count = plan->stretch_sites_count;
	plan->stretch_sites_count = 0;
}

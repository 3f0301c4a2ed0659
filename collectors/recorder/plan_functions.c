// SPDX-License-Identifier: GPL-2.0-only
/* The lines of a plan about functions whose calls are counted (`--functions`). */
#include "plan_reader.h"

#include "functions.h"

int plan_read_function(struct plan_reader *reader, struct words *words)
{
	struct plan *plan = reader->plan;
	struct plan_function *function = &plan->functions[plan->functions_count];
	struct word word;
	u64 number;

	if (plan->functions_count == PLAN_FUNCTIONS_MOST)
		return plan_refuse(reader, "too many functions");
	if (!next_word(words, &word) || !number_of(&word, PLAN_FUNCTIONS_MOST, &number) ||
	    number != plan->functions_count)
		return plan_refuse(reader, "functions are not numbered from 0");
	if (!next_value(words, "entry", &word) ||
	    !plan_one_of(&word, "stepped", "emulated", &function->is_entry_stepped) ||
	    !next_value(words, "exit", &word))
		return plan_refuse(reader, "not the entry and exit of a function");
	function->has_exit = !is_word(&word, "none");
	function->is_return = is_word(&word, "return");
	if (function->has_exit && !function->is_return &&
	    !plan_one_of(&word, "stepped", "emulated", &function->is_exit_stepped))
		return plan_refuse(reader, "not the exit of a function");
	if (!plan_is_described(words))
		return plan_refuse(reader, "no description of the function");
	plan->functions_count++;
	return 0;
}

static bool is_cookie_of(const struct plan_point *point, const struct plan_function *function)
{
	return COOKIE_FUNCTION(point->cookie) == point->function &&
	       COOKIE_TIMED(point->cookie) == function->has_exit &&
	       (!point->is_exit || (function->has_exit && point->is_return == function->is_return));
}

int plan_read_point(struct plan_reader *reader, struct words *words)
{
	struct plan *plan = reader->plan;
	struct plan_point *point = &plan->points[plan->points_count];
	struct word word;
	u64 number;

	if (plan->points_count == PLAN_POINTS_MOST)
		return plan_refuse(reader, "too many probes of functions: choose fewer of them");
	if (!next_word(words, &word) || !number_of(&word, PLAN_POINTS_MOST, &number) ||
	    number != plan->points_count)
		return plan_refuse(reader, "probes of functions are not numbered from 0");
	if (!next_value(words, "function", &word) ||
	    !number_of(&word, PLAN_FUNCTIONS_MOST, &number) || number >= plan->functions_count)
		return plan_refuse(reader, "a function that the plan does not list before");
	point->function = (u32)number;
	if (plan_read_place(reader, words, &point->file, &point->offset))
		return -1;
	if (!next_value(words, "event", &word) ||
	    !plan_one_of(&word, "exit", "enter", &point->is_exit) ||
	    !next_value(words, "kind", &word) ||
	    !plan_one_of(&word, "uretprobe", "uprobe", &point->is_return))
		return plan_refuse(reader, "not the event and kind of a probe");
	if (!next_value(words, "cookie", &word) || !number_of(&word, ~0ULL, &point->cookie) ||
	    !is_cookie_of(point, &plan->functions[number]))
		return plan_refuse(reader, "the cookie is not that of this function");
	point->code_bytes = plan_read_code(words, point->code);
	if (!point->code_bytes || words->at != words->end)
		return plan_refuse(reader, "no bytes of the code, or more than that");
	plan->points_count++;
	return 0;
}

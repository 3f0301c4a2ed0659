// SPDX-License-Identifier: GPL-2.0-only
#include "beginning.h"

#include <signal.h>

#include "call_price.h"
#include "ending.h"
#include "failure.h"
#include "kernel_lookup.h"
#include "links.h"
#include "privileges.h"
#include "rates.h"
#include "session.h"
#include "start.h"
#include "watchdog.h"
#include "whole_stretches.h"

/* Flow or record, by what their events would cost: before anything of a ledger is attached. */
static void choose_level(struct options *options)
{
	struct level_choice choice;
	struct rates rates;

	if (!options->chooses_level)
		return;
	sockets_source();   /* its trial has the watchdog for itself */
	watchdog_arm(true); /* what counts is attached */
	bool is_counted = rates_count(session->target.pid, &rates);
	watchdog_arm(false);
	if (!is_counted)
		return;
	level_choose(&rates, plan_trap_ns(&session->plan), options->budget, options->floor_cpus,
		     &choice);
	schedule_note_level(&choice);
	if (choice.level == LEVEL_RECORD) {
		plan_for_record(&session->plan);
		options->calibrate_ns = 0;
	}
}

/* That of the first target with programs: they all have its heartbeat. NULL: there is none yet. */
static const struct engine *first_engine(void)
{
	for (u32 i = 0; i < session->number; i++)
		if (session_of(i)->progress == PROGRESS_OPENED)
			return &session_of(i)->engine;
	return NULL;
}

/* Load the programs for the target whose turn it is. */
static int load(void)
{
	struct options *options = &session->options;
	const struct plan *plan = &session->plan;
	struct engine *engine = &session->engine;
	struct target *target = &session->target;
	struct settings settings;

	if (start_check(options, plan) || target_open(target, options->pid) ||
	    (!options->may_be_traced && target_is_traced(target)) || target_verify(target, plan))
		return -1;
	choose_level(options);
	if (start_settings(options, plan, target, &settings) || start_tables(options, plan))
		return -1;
	settings.first = first_engine();
	if (engine_load(engine, plan, target, &settings) ||
	    function_probes_load(engine, plan, target) ||
	    stretches_load(options->calibrate_ns, engine, plan, target) ||
	    totals_prepare(engine, plan, target))
		return -1;
	quota_open(&session->quota, target->pid);
	return 0;
}

static int start_recording(void)
{
	const struct options *options = &session->options;

	if (!schedule_begin(options, &session->windows, &session->engine, &session->plan,
			    &session->target))
		return fail(EXIT_CODE_USAGE,
			    "the queue is too small for the accounts of all threads: "
			    "give more than --queue %zuK",
			    options->queue_bytes >> 10);
	whole_put();
	session->progress = PROGRESS_RECORDING;
	return 0;
}

static int attach_all(void)
{
	struct engine *engine = &session->engine;

	if (function_probes_begin(engine, &session->plan, &session->target))
		return -1;
	call_price_measure();
	statistics_turn(true);
	if (engine_attach(engine, &session->plan, &session->target, (int)engine->settings.level) ||
	    stretches_attach() || whole_measure())
		return -1;
	return start_put(engine, &session->plan, &session->target, &session->options,
			 session->plan_text, session->plan_bytes);
}

static int attach(void)
{
	if (attach_all())
		return ending_is_why()
			       ? fail(EXIT_CODE_TARGET,
				      "process %d cannot be recorded: it ended while it was being "
				      "attached to",
				      session->target.pid)
			       : -1;
	if (target_has_executed(&session->target))
		return fail(EXIT_CODE_TARGET,
			    "process %d cannot be recorded: it executed another program while it "
			    "was being attached to",
			    session->target.pid);
	session->progress = PROGRESS_STARTED;
	return start_recording(); /* what it costs counts, while others are being attached to */
}

bool beginning_is_interrupted(void)
{
	sigset_t waiting;

	return !sigpending(&waiting) &&
	       (sigismember(&waiting, SIGINT) || sigismember(&waiting, SIGTERM) ||
		sigismember(&waiting, SIGHUP));
}

static int for_each(int (*step)(void))
{
	for (u32 i = 0; i < sessions_count(); i++) {
		session_turn(i);
		if (session->progress >= PROGRESS_DETACHED)
			continue; /* it was left out */
		if (step()) {
			if (!session_of(0)->options.keeps_going)
				return -1;
			ending_of_one();
			ending_close_one();
		}
		if (i + 1 < sessions_count() && beginning_is_interrupted())
			return fail(EXIT_CODE_FAILED,
				    "it was asked to end before all processes were attached to");
	}
	return 0;
}

int begin_all(void)
{
	sockets_use(session_of(0)->options.sockets);
	if (for_each(load) || links_prepare())
		return -1;
	kernel_lookup_prepare();
	watchdog_arm(true);
	if (for_each(attach))
		return -1;
	bool is_filtered = privileges_keep_needed(watchdog_pid());
	for (u32 i = 0; i < sessions_count(); i++)
		if (session_of(i)->progress == PROGRESS_RECORDING)
			tell("attached to process %d", session_of(i)->target.pid);
	if (!is_filtered)
		tell("this kernel has no filters of system calls: none is refused");
	return 0;
}

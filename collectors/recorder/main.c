// SPDX-License-Identifier: GPL-2.0-only
/*
 * tlstax-recorder - record one process as planned, and write a stream.
 *
 * Everything that runs on a measured host while it is measured: no interpreter, no compiler, no
 * other file. At the end of a window the totals are read, probes are detached if it was the last,
 * and then a thread writes. docs/recorder.md describes its use.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "control.h"
#include "engine.h"
#include "failure.h"
#include "function_probes.h"
#include "levels.h"
#include "links.h"
#include "options.h"
#include "metering.h"
#include "output.h"
#include "prices.h"
#include "privileges.h"
#include "quota.h"
#include "rates.h"
#include "schedule.h"
#include "serve.h"
#include "start.h"
#include "stretches.h"
#include "stream.h"
#include "totals.h"
#include "watchdog.h"

#define STUCK_NS (2 * NS_PER_S)
#define STALLED_NS (20 * NS_PER_S) /* nothing is attached: line or reader may stall */

enum { ATTEMPTS = 16 }; /* to send what had no room, each with an empty queue */

static struct plan plan;
static struct target target;
static struct engine engine;
static struct windows windows;
static int signals_fd;
static char ending[192];

/* The target ended, or executed `program`. */
static void end_target(const char *program)
{
	if (program)
		snprintf(ending, sizeof(ending), "it executed %s in the same process", program);
	else
		snprintf(ending, sizeof(ending), "it exited or was killed");
	fail(EXIT_CODE_TARGET,
	     "process %d ended while it was recorded: %s. The stream is complete until then",
	     target.pid, ending);
}

/* Whether the reader of the stream is gone or takes nothing any more. */
static bool is_reader_lost(int output)
{
	struct pollfd reader = {.fd = output};
	int error = output_error();

	if (!error && poll(&reader, 1, 0) == 1 && reader.revents & (POLLERR | POLLNVAL | POLLHUP))
		error = EPIPE;
	if (error == EPIPE)
		fail(EXIT_CODE_IO,
		     "the reader of the stream is gone: the recording ended and everything "
		     "is detached");
	else if (error)
		fail(EXIT_CODE_IO,
		     "the stream cannot be written: %s: the recording ended and everything "
		     "is detached",
		     strerror(error));
	else if (windows.is_full && output_waiting_ns() > STUCK_NS)
		fail(EXIT_CODE_IO,
		     "the reader of the stream took nothing for 2 s and the queue is full: "
		     "the recording ended and everything is detached");
	else
		return false;
	return true;
}

/* Wait, at most until `wake_ns`; true: a signal ends the recording, or the target ended. */
static bool wait_for_event(u64 wake_ns)
{
	struct pollfd events[] = {{.fd = target.pidfd, .events = POLLIN},
				  {.fd = signals_fd, .events = POLLIN},
				  {.fd = serve_life_line(), .events = POLLIN},
				  {.fd = control_line(), .events = POLLIN}};
	u64 now = monotonic_ns();
	int patience_ms = wake_ns > now ? (int)((wake_ns - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
	struct lifecycle life;

	poll(events, COUNT(events), patience_ms);
	watchdog_beat();
	if (watchdog_missed())
		fail(EXIT_CODE_FAILED,
		     "the recorder did not run for 2 s: the programs in the kernel were idle "
		     "meanwhile. The stream is complete until then");
	engine_read_lifecycle(&engine, &life);
	if (life.executed_ns)
		end_target(target_program(&target));
	else if (events[0].revents & POLLIN)
		end_target(NULL);
	return failure.code || events[1].revents & POLLIN || serve_is_over() ||
	       (events[3].revents && !control_take());
}

static void record(const struct options *options, int output)
{
	u64 end_ns = options->for_ns ? monotonic_ns() + options->for_ns : ~0ULL;

	for (;;) {
		u64 wake_ns = schedule_wake_ns(), cut_ns;
		if (wait_for_event(wake_ns < end_ns ? wake_ns : end_ns))
			return;
		if (control_cut(&cut_ns))
			schedule_end_window(cut_ns);
		if (monotonic_ns() >= end_ns || watchdog_check() || is_reader_lost(output) ||
		    schedule_step())
			return;
	}
}

static void put_error(void)
{
	struct stream_error *error = output_put_alone(STREAM_ERROR, sizeof(*error));

	if (!error)
		return;
	error->time_ns = monotonic_ns();
	error->exit_code = (u64)failure.code;
	memcpy(error->text, failure.text, sizeof(error->text));
}

static void put_end(u64 end_ns, u64 detach_ns)
{
	struct stream_end *end = output_put_alone(STREAM_END, sizeof(*end));

	if (!end)
		return;
	end->time_ns = end_ns;
	end->exit_code = (u64)failure.code;
	end->windows_count = windows.number ? windows.number - 1 : 0;
	end->merged_count = windows.merged_count;
	end->detach_ns = detach_ns;
	memcpy(end->ending, ending, sizeof(end->ending));
}

/* Read, detach, then say the rest. */
static void finish(bool is_attached)
{
	u64 before_ns = monotonic_ns();
	bool is_cut = !is_attached || watchdog_missed() || schedule_cut_last();

	statistics_turn(false);
	engine_detach(&engine);
	u64 end_ns = monotonic_ns();
	watchdog_arm(false);
	/* What had no room is still in the maps. */
	for (int i = 0; !is_cut && i < ATTEMPTS && !output_finish(STUCK_NS); i++)
		is_cut = schedule_cut_last();
	if (is_attached) {
		target_send_mappings(&target);
		output_commit();
		kernel_names_put();
		output_commit();
	}
	if (!ending[0])
		strcpy(ending, "it was running");
	if (failure.code)
		put_error();
	if (is_attached)
		put_end(end_ns, end_ns - before_ns);
	output_commit();
	bool is_early = failure.code && failure.code != EXIT_CODE_TARGET;
	u64 left = output_finish(is_early ? STUCK_NS : STALLED_NS);
	if (left && is_attached && failure.code == EXIT_CODE_TARGET)
		failure.code = 0; /* it says that the stream is complete */
	if (left)
		fail(EXIT_CODE_IO, "the stream was not taken to its end: %llu bytes are lost",
		     left);
}

static int block_signals(void)
{
	static const int ignored[] = {SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU};
	sigset_t ending_set;

	for (u32 i = 0; i < COUNT(ignored); i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&ending_set);
	sigaddset(&ending_set, SIGINT);
	sigaddset(&ending_set, SIGTERM);
	sigaddset(&ending_set, SIGHUP);
	sigprocmask(SIG_BLOCK, &ending_set, NULL);
	signals_fd = signalfd(-1, &ending_set, SFD_CLOEXEC);
	return signals_fd < 0 ? fail(EXIT_CODE_HOST, "no signalfd: %s", strerror(errno)) : 0;
}

static int open_output(const struct options *options)
{
	int fd = STDOUT_FILENO;

	if (options->output)
		fd = open(options->output, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(EXIT_CODE_IO, "cannot create %s: %s", options->output, strerror(errno));
	if (isatty(fd))
		return fail(EXIT_CODE_USAGE,
			    "the stream is not for a terminal: redirect it to a file");
	return fd;
}

/* Flow or record, by what their events would cost: before anything of a ledger is attached. */
static void choose_level(struct options *options)
{
	struct level_choice choice;
	struct rates rates;

	if (!options->chooses_level)
		return;
	sockets_source();   /* its trial has the watchdog for itself */
	watchdog_arm(true); /* what counts is attached */
	bool is_counted = rates_count(target.pid, &rates);
	watchdog_arm(false);
	if (!is_counted)
		return;
	level_choose(&rates, plan_trap_ns(&plan), options->budget, options->floor_cpus, &choice);
	schedule_note_level(&choice);
	if (choice.level == LEVEL_RECORD) {
		plan_for_record(&plan);
		options->calibrate_ns = 0;
	}
}

/* Everything up to the first window; what is attached is detached by finish(). */
static int begin(struct options *options, const char *text, size_t length, bool *is_attached)
{
	struct settings settings;

	if (start_check(options, &plan) || target_open(&target, options->pid) ||
	    (!options->may_be_traced && target_is_traced(&target)) || target_verify(&target, &plan))
		return -1;
	sockets_use(options->sockets);
	choose_level(options);
	if (start_settings(options, &plan, &target, &settings) || start_tables(options, &plan) ||
	    engine_load(&engine, &plan, &target, &settings) ||
	    function_probes_load(&engine, &plan, &target) ||
	    stretches_load(options->calibrate_ns, &engine, &plan, &target) ||
	    totals_prepare(&engine, &plan, &target) || links_prepare())
		return -1;
	quota_open(target.pid);
	watchdog_arm(true);
	if (function_probes_begin(&engine, &plan, &target))
		return -1;
	statistics_turn(true);
	if (engine_attach(&engine, &plan, &target, (int)settings.level) || stretches_attach())
		return -1;
	if (start_put(&engine, &plan, &target, options, text, length))
		return -1;
	*is_attached = true;
	if (!schedule_begin(options, &windows, &engine, &plan, &target))
		return fail(EXIT_CODE_USAGE,
			    "the queue is too small for the accounts of all threads: "
			    "give more than --queue %zuK",
			    options->queue_bytes >> 10);
	bool is_filtered = privileges_keep_needed(watchdog_pid());
	tell("attached to process %d", target.pid);
	if (!is_filtered)
		tell("this kernel has no filters of system calls: none is refused");
	return 0;
}

/* A standard stream that is closed would be the number of the next file: a message in a stream. */
static void fill_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int count, char **arguments)
{
	struct options options;
	bool is_attached = false;
	size_t length = 0;
	const char *text = NULL;
	int output = -1;

	fill_standard_streams();
	int done = options_parse(&options, count, arguments);
	if (done > 0)
		return EXIT_CODE_OK;
	if (!done && options.is_pricing) {
		if (prices_print())
			tell("%s", failure.text);
		return failure.code;
	}
	if (!done)
		text = options.is_serving ? serve(&options, &plan, &length)
					  : start_read_plan(options.plan, &plan, &length);
	if (text && options.is_controlled)
		control_open();
	if (text && !block_signals())
		output = open_output(&options);
	if (output >= 0 && !watchdog_start(output) && !output_open(output, options.queue_bytes)) {
		if (!begin(&options, text, length, &is_attached))
			record(&options, output);
		finish(is_attached);
	}
	watchdog_stop();
	if (failure.code)
		tell("%s", failure.text);
	else
		tell("%llu windows recorded", windows.number ? windows.number - 1 : 0);
	_exit(failure.code); /* the writer may be stuck in a write: it is not waited for */
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * tlstax-recorder - record processes as planned, and write a stream.
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

#include "beginning.h"
#include "control.h"
#include "ending.h"
#include "failure.h"
#include "opening.h"
#include "output.h"
#include "serve.h"
#include "session.h"
#include "watchdog.h"

#define STUCK_NS (2 * NS_PER_S)
#define STALLED_NS (20 * NS_PER_S) /* nothing is attached: line or reader may stall */

enum { LINES = 4 };	/* that are waited for, beside the targets */
enum { ATTEMPTS = 64 }; /* to send what had no room, each with an empty queue */

static int signals_fd;

static bool is_any_full(void)
{
	for (u32 i = 0; i < sessions_count(); i++)
		if (session_of(i)->windows.is_full)
			return true;
	return false;
}

static bool is_recording(const struct session *one)
{
	return one->progress == PROGRESS_RECORDING;
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
	else if (is_any_full() && output_waiting_ns() > STUCK_NS)
		fail(EXIT_CODE_IO,
		     "the reader of the stream took nothing for 2 s and the queue is full: "
		     "the recording ended and everything is detached");
	else
		return false;
	return true;
}

/* Wait, at most until `wake_ns`; true: a signal or an error ends the recording of all. */
static bool wait_for_event(u64 wake_ns, int output)
{
	struct pollfd events[LINES + STREAM_TARGETS_MOST] = {
		{.fd = signals_fd, .events = POLLIN},
		{.fd = serve_life_line(), .events = POLLIN},
		{.fd = control_line(), .events = POLLIN},
		{.fd = output}, /* that its reader is gone: see is_reader_lost() */
	};
	u32 count = sessions_count();
	u64 now = monotonic_ns();
	int patience_ms = wake_ns > now ? (int)((wake_ns - now + NS_PER_MS - 1) / NS_PER_MS) : 0;

	for (u32 i = 0; i < count; i++)
		events[LINES + i] = (struct pollfd){
			.fd = is_recording(session_of(i)) ? session_of(i)->target.pidfd : -1,
			.events = POLLIN,
		};
	poll(events, LINES + count, patience_ms);
	watchdog_beat();
	if (watchdog_missed() && !watchdog_starved())
		fail(EXIT_CODE_FAILED,
		     "the recorder did not run for 2 s: the programs in the kernel were idle "
		     "meanwhile. The stream is complete until then");
	for (u32 i = 0; i < count; i++)
		session_of(i)->is_gone |= events[LINES + i].revents & POLLIN;
	return failure.code || events[0].revents & POLLIN || serve_is_over() ||
	       (events[2].revents && !control_take());
}

/* Whether the target whose turn it is has ended; it may have just now, with a signal to us. */
static bool has_ended(void)
{
	struct pollfd process = {.fd = session->target.pidfd, .events = POLLIN};
	struct lifecycle life;

	engine_read_lifecycle(&session->engine, &life);
	if (life.executed_ns)
		ending_of_target(target_program(&session->target));
	else if (session->is_gone || poll(&process, 1, 0) == 1)
		ending_of_target(NULL);
	else
		return false;
	return true;
}

/* What is due of the target whose turn it is; false: its recording ends. */
static bool go_on(void)
{
	if (has_ended() || failure.code)
		return false;
	if (!schedule_step())
		return true;
	if (ending_is_why()) {
		ending_of_target(NULL);
		return false;
	}
	/* An earlier reason is kept. */
	fail(EXIT_CODE_HOST, "process %d: probes could not be attached or detached: %s",
	     session->target.pid, strerror(errno));
	return false;
}

/* When something is to be done next, `end_ns` at the latest; 0: nothing is recorded any more. */
static u64 next_wake_ns(u64 end_ns)
{
	bool is_any = false;

	for (u32 i = 0; i < sessions_count(); i++) {
		if (!is_recording(session_of(i)))
			continue;
		is_any = true;
		session_turn(i);
		if (schedule_wake_ns() < end_ns)
			end_ns = schedule_wake_ns();
	}
	return is_any ? end_ns : 0;
}

static u32 recording_count(void)
{
	u32 count = 0;

	for (u32 i = 0; i < sessions_count(); i++)
		count += is_recording(session_of(i));
	return count;
}

static bool for_each_recorded(int (*step)(void))
{
	for (u32 i = 0; i < sessions_count(); i++) {
		session_turn(i);
		if (is_recording(session) && step() && !ending_is_why())
			return !fail(EXIT_CODE_HOST,
				     "process %d: probes could not be attached again after the "
				     "recorder got no CPU for more than 2 s: %s",
				     session->target.pid, strerror(errno));
	}
	return true;
}

/*
 * It got no CPU for so long that the programs in the kernel were idle. What they hold is of no
 * window; all of them are detached before any runs again. False: it cannot go on.
 */
static bool go_on_after_starvation(void)
{
	if (!for_each_recorded(schedule_lapse))
		return false;
	watchdog_resume();
	return for_each_recorded(schedule_resume);
}

/* Where the last window of the first target ended. */
static u64 first_end_ns(void)
{
	return session_of(0)->schedule.last_end_ns;
}

/* They began one after the other: their windows so far end at the same time. */
static void end_first_windows(void)
{
	u64 now_ns = monotonic_ns();

	for (u32 i = 0; i < sessions_count(); i++) {
		session_turn(i);
		schedule_end_window(now_ns);
	}
}

static void record(u64 for_ns, int output)
{
	u64 end_ns = for_ns ? monotonic_ns() + for_ns : ~0ULL, cut_ns, wake_ns;
	bool is_together = serve_is_together();

	if (is_together)
		end_first_windows();
	while ((wake_ns = next_wake_ns(end_ns))) {
		if (wait_for_event(wake_ns, output) ||
		    (watchdog_starved() && !go_on_after_starvation()))
			return;
		bool is_cut = control_cut(&cut_ns);
		if (is_cut && !cut_ns)
			cut_ns = monotonic_ns(); /* the same for all */
		if (monotonic_ns() >= end_ns || watchdog_check() || is_reader_lost(output))
			return;
		for (u32 i = 0; i < sessions_count(); i++) {
			if (watchdog_missed())
				break; /* while it read another target: no window goes on */
			session_turn(i);
			ending_close_one();
			if (!is_recording(session))
				continue;
			if (is_cut || is_together)
				schedule_end_window(is_cut ? cut_ns : first_end_ns());
			if (go_on())
				continue;
			if (recording_count() == 1)
				return;
			ending_of_one();
			ending_close_one();
			if (is_together && !i)
				return;
		}
	}
}

/* What had no room is still in the maps: wait for the reader. False: it takes nothing. */
static bool close_slowly(u64 patience_ns)
{
	for (int k = 0; k < ATTEMPTS && !(ending_cut() && ending_close()); k++)
		if (output_finish(patience_ns))
			return false;
	return true;
}

/* Read and detach all, then say the rest. */
static void finish(void)
{
	bool is_started = false, is_stuck = false;

	for (u32 i = 0; i < sessions_count(); i++) {
		struct failure of_all = failure;
		session_turn(i);
		if (is_recording(session))
			has_ended();
		if (session->progress < PROGRESS_DETACHED)
			ending_detach();
		if (session->failure.code == EXIT_CODE_TARGET && sessions_count() > 1)
			failure = of_all; /* not that of the next one */
		is_started |= session->is_started;
	}
	watchdog_arm(false);
	bool is_early = failure.code && failure.code != EXIT_CODE_TARGET;
	u64 patience_ns = is_early ? STUCK_NS : STALLED_NS;
	for (u32 i = 0; i < sessions_count(); i++) {
		session_turn(i);
		if (session->progress == PROGRESS_OVER)
			continue;
		is_stuck = is_stuck || !close_slowly(patience_ns);
		if (session->progress != PROGRESS_OVER)
			ending_give_up();
	}
	u64 left = output_finish(is_stuck ? STUCK_NS : patience_ns);
	if (left && is_started && failure.code == EXIT_CODE_TARGET)
		failure.code = 0; /* it says that the stream is complete */
	if (left)
		fail(EXIT_CODE_IO, "the stream was not taken to its end: %llu bytes are lost",
		     left);
}

/* Of several targets: the first failure, unless targets just ended and others did not. */
static void judge_all(void)
{
	u32 ended_count = 0;

	for (u32 i = 0; i < sessions_count(); i++)
		ended_count += session_of(i)->failure.code == EXIT_CODE_TARGET;
	if (failure.code == EXIT_CODE_TARGET && ended_count < sessions_count())
		failure = (struct failure){0};
	if (!failure.code && ended_count == sessions_count())
		failure = session_of(0)->failure;
	for (u32 i = 0; i < sessions_count() && !failure.code; i++)
		if (session_of(i)->failure.code != EXIT_CODE_TARGET)
			failure = session_of(i)->failure;
}

static int block_signals(void)
{
	static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU};
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

int main(int count, char **arguments)
{
	int output = -1;

	opening_files();
	int done = opening_sessions(count, arguments);
	if (done > 0)
		return EXIT_CODE_OK;
	const struct options *options = &session_of(0)->options;
	if (!done && options->is_controlled)
		control_open();
	if (!done && !block_signals())
		output = opening_output(options);
	if (output >= 0 && !watchdog_start(output, serve_life_line() >= 0) &&
	    !output_open(output, options->queue_bytes)) {
		if (!begin_all())
			record(options->for_ns, output);
		finish();
		judge_all();
	}
	if (output >= 0)
		opening_forget_output(options);
	watchdog_stop();
	u64 windows_count = 0;
	for (u32 i = 0; i < sessions_count(); i++)
		windows_count +=
			session_of(i)->windows.number ? session_of(i)->windows.number - 1 : 0;
	if (failure.code)
		tell("%s", failure.text);
	else
		tell("%llu windows recorded", windows_count);
	_exit(failure.code); /* the writer may be stuck in a write: it is not waited for */
}

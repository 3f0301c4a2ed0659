// SPDX-License-Identifier: GPL-2.0-only
#include "ending.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "output.h"
#include "session.h"
#include "watchdog.h"

enum { EXITING_MS = 100 };

void ending_of_target(const char *program)
{
	char *ending = session->ending;

	if (program)
		snprintf(ending, sizeof(session->ending), "it executed %s in the same process",
			 program);
	else
		snprintf(ending, sizeof(session->ending), "it exited or was killed");
	fail(EXIT_CODE_TARGET,
	     "process %d ended while it was recorded: %s. The stream is complete until then",
	     session->target.pid, ending);
}

bool ending_is_why(void)
{
	struct pollfd process = {.fd = session->target.pidfd, .events = POLLIN};

	/* The kernel refuses one that is ending before it has ended. */
	if (poll(&process, 1, EXITING_MS) != 1)
		return false;
	failure = (struct failure){0};
	return true;
}

/* Without room the window is tried again: it is not a part of a longer one. */
static bool cut_last(void)
{
	u64 merged_count = session->windows.merged_count;
	bool is_cut = schedule_cut_last();

	session->windows.merged_count = merged_count;
	return is_cut;
}

void ending_detach(void)
{
	u64 before_ns = monotonic_ns();
	bool is_cut = session->progress < PROGRESS_RECORDING || watchdog_missed() || cut_last();

	if (!is_cut && watchdog_missed()) {
		tell("process %d: the recorder got no CPU while it read the last window, which is "
		     "left out",
		     session->options.pid);
		is_cut = true;
	}

	session->failure = failure;
	statistics_turn(false);
	engine_detach(&session->engine);
	session->end_ns = monotonic_ns();
	session->detach_ns = session->end_ns - before_ns;
	session->is_started = session->progress >= PROGRESS_STARTED;
	session->progress = is_cut ? PROGRESS_READ : PROGRESS_DETACHED;
}

bool ending_cut(void)
{
	if (session->progress == PROGRESS_DETACHED && cut_last())
		session->progress = PROGRESS_READ;
	return session->progress >= PROGRESS_READ;
}

static void put_error(void)
{
	struct stream_error *error = output_put_alone(STREAM_ERROR, sizeof(*error));

	if (!error)
		return;
	error->time_ns = monotonic_ns();
	error->exit_code = (u64)session->failure.code;
	memcpy(error->text, session->failure.text, sizeof(error->text));
}

static void put_end(void)
{
	const struct windows *windows = &session->windows;
	struct stream_end *end = output_put_alone(STREAM_END, sizeof(*end));

	if (!end)
		return;
	end->time_ns = session->end_ns;
	end->exit_code = (u64)session->failure.code;
	end->windows_count = windows->number ? windows->number - 1 : 0;
	end->merged_count = windows->merged_count;
	end->detach_ns = session->detach_ns;
	memcpy(end->ending, session->ending, sizeof(end->ending));
}

static bool put_places(void)
{
	bool has_room = target_send_mappings(&session->target);

	output_commit();
	if (has_room)
		has_room = kernel_names_put(&session->named);
	output_commit();
	return has_room;
}

static void say_end(void)
{
	if (!session->ending[0])
		strcpy(session->ending, "it was running");
	if (session->failure.code)
		put_error();
	if (session->is_started)
		put_end();
	output_commit();
	session->progress = PROGRESS_OVER;
}

bool ending_close(void)
{
	if ((session->is_started && !put_places()) || !output_has_room(sessions_end_bytes()))
		return false;
	say_end();
	return true;
}

void ending_give_up(void)
{
	/* That a target ended says that the stream is complete. */
	if (failure.code == EXIT_CODE_TARGET)
		failure.code = 0;
	fail(EXIT_CODE_IO,
	     "process %d: the end of its recording found no room in the stream and is lost",
	     session->target.pid);
	session->failure = failure;
	say_end();
}

void ending_of_one(void)
{
	ending_detach();
	failure = (struct failure){0};
	if (strncmp(session->failure.text, "process ", strlen("process ")) != 0)
		tell("process %d: %s", session->options.pid, session->failure.text);
	else
		tell("%s", session->failure.text);
}

/* Half of the queue is for those that go on. */
static bool has_room(void)
{
	return output_has_room(session->options.queue_bytes / 2);
}

void ending_close_one(void)
{
	bool is_waiting =
		session->progress == PROGRESS_DETACHED || session->progress == PROGRESS_READ;

	if (is_waiting && has_room() && ending_cut() && has_room())
		ending_close();
}

// SPDX-License-Identifier: GPL-2.0-only
#include "opening.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "failure.h"
#include "prices.h"
#include "serve.h"
#include "session.h"
#include "start.h"

int opening_output(const struct options *options)
{
	int fd = STDOUT_FILENO;

	if (options->output)
		fd = open(options->output, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(EXIT_CODE_IO, "cannot create %s: %s: %s", options->output,
			    strerror(errno),
			    errno == EEXIST ? "give another name, or remove it"
					    : "choose another directory");
	int how = fcntl(fd, F_GETFL);
	if (how < 0 || (how & O_ACCMODE) == O_RDONLY)
		return fail(EXIT_CODE_USAGE, "standard output is closed or cannot be written: "
					     "redirect it to a file, or give --output FILE");
	if (isatty(fd))
		return fail(EXIT_CODE_USAGE,
			    "the stream is not for a terminal: redirect it to a file");
	return fd;
}

void opening_forget_output(const struct options *options)
{
	for (u32 i = 0; i < sessions_count(); i++)
		if (session_of(i)->is_started)
			return;
	if (options->output)
		unlink(options->output);
}

int opening_check_further(void)
{
	struct options *options = &session->options;

	if (session->number && options_share(options, &session_of(0)->options))
		return -1;
	for (u32 i = 0; i < session->number; i++)
		if (session_of(i)->options.pid == options->pid)
			return fail(EXIT_CODE_USAGE, "process %d was given twice. See --help",
				    options->pid);
	return 0;
}

/* The options and the plan of a target. 1: there is nothing to record. */
static int open_session(int count, char **arguments)
{
	if (session_add())
		return -1;
	struct options *options = &session->options;
	int done = options_parse(options, count, arguments);
	if (done)
		return done;
	if (opening_check_further())
		return -1;
	if (options->is_pricing)
		return prices_print() ? -1 : 1;
	if (options->is_serving)
		return serve();
	session->plan_text = start_read_plan(options->plan, &session->plan, &session->plan_bytes);
	return session->plan_text ? 0 : -1;
}

int opening_sessions(int count, char **arguments)
{
	int done = 0;

	for (int start = 0, end = 1; !done && start < count; start = end++) {
		while (end < count && strcmp(arguments[end], "--next") != 0)
			end++;
		done = open_session(end - start, arguments + start);
	}
	return done;
}

void opening_files(void)
{
	struct rlimit files;
	int fd;

	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

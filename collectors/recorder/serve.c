// SPDX-License-Identifier: GPL-2.0-only
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answers.h"
#include "facts.h"
#include "failure.h"
#include "opening.h"
#include "prices.h"
#include "sections.h"
#include "session.h"
#include "stream.h"
#include "tables.h"
#include "target.h"

#define SILENCE_NS (20 * NS_PER_S)

enum { LINE_MOST = 4096, WORDS_MOST = 32 };

static struct {
	char bytes[LINE_MOST];
	size_t at, used;
} input;
static struct {
	bool is_on, is_together;
	u64 heard_ns;
} life;

/* Delete this executable and its directory, if that is then empty: nothing is left on the host,
 * whatever becomes of this process. Only the file that runs is deleted, wherever the name leads. */
static void remove_self(void)
{
	struct stat own, found;
	char path[LINE_MOST];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *name = NULL;

	if (length > 0) {
		path[length] = 0;
		name = strrchr(path, '/');
	}
	if (!name || name == path || stat("/proc/self/exe", &own))
		return;
	*name++ = 0;
	int directory = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0)
		return;
	if (!fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) && found.st_dev == own.st_dev &&
	    found.st_ino == own.st_ino && !unlinkat(directory, name, 0))
		rmdir(path);
	close(directory);
}

/* More input; false: there is none, or it is not taken. Waits as long as an answer may take. */
static bool fill(void)
{
	input.used -= input.at;
	memmove(input.bytes, input.bytes + input.at, input.used);
	input.at = 0;
	if (input.used == sizeof(input.bytes))
		return false;
	alarm(ANSWER_PATIENCE_S);
	ssize_t got =
		read(STDIN_FILENO, input.bytes + input.used, sizeof(input.bytes) - input.used);
	input.used += got > 0 ? (size_t)got : 0;
	return got > 0;
}

/* The next request; NULL: no more come. */
static char *next_line(void)
{
	static char line[LINE_MOST];

	for (;;) {
		char *start = input.bytes + input.at;
		char *end = memchr(start, '\n', input.used - input.at);
		if (end) {
			memcpy(line, start, (size_t)(end - start));
			line[end - start] = 0;
			input.at += (size_t)(end - start) + 1;
			return line;
		}
		if (!fill())
			return NULL;
	}
}

/* So many bytes behind the request. */
static const char *take_bytes(size_t bytes)
{
	char *text = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (text == MAP_FAILED) {
		fail(EXIT_CODE_HOST, "cannot map memory: %s", strerror(errno));
		return NULL;
	}
	for (size_t have = 0; have < bytes;) {
		if (input.at == input.used && !fill())
			_exit(EXIT_CODE_IO); /* nobody is there to be told */
		size_t part = input.used - input.at;
		if (part > bytes - have)
			part = bytes - have;
		memcpy(text + have, input.bytes + input.at, part);
		input.at += part;
		have += part;
	}
	return text;
}

static int refuse(void)
{
	return fail(EXIT_CODE_USAGE, "it was asked for something that it does not know");
}

static int put_file_at(char *rest)
{
	char *end;
	int pid = (int)strtol(rest, &end, 10), failed;
	u64 start = *end == ' ' ? strtoull(end + 1, NULL, 16) : 0;
	u32 count = pid > 0 ? target_read_mappings(pid) : 0;
	const char *path;

	for (u32 i = 0; i < count; i++) {
		const struct stream_mapping *mapping = target_mapping(i, &path);
		if (mapping->start != start || !mapping->inode)
			continue;
		int fd = target_open_mapping(pid, i);
		if (fd < 0)
			return 0;
		failed = sections_put(fd);
		close(fd);
		return failed;
	}
	return 0;
}

/* Unwind tables of the target, into a file in memory that its options name. */
static int take_tables(size_t bytes)
{
	const char *content = take_bytes(bytes);
	int fd = content ? memfd_create("unwind", MFD_CLOEXEC) : -1;

	if (!content)
		return -1;
	for (size_t have = 0; fd >= 0 && have < bytes;) {
		ssize_t put = write(fd, content + have, bytes - have);
		if (put <= 0)
			return fail(EXIT_CODE_HOST, "cannot keep the unwind tables: %s",
				    strerror(errno));
		have += (size_t)put;
	}
	munmap((void *)content, bytes);
	if (fd < 0)
		return fail(EXIT_CODE_HOST, "memfd_create: %s", strerror(errno));
	snprintf(session->tables_path, sizeof(session->tables_path), "/proc/self/fd/%d", fd);
	session->options.tables = session->tables_path;
	return 0;
}

/* A target: its options, plan and unwind tables. */
static int take_target(char *rest)
{
	char name[] = "tlstax-recorder", plan_option[] = "--plan", nothing[] = "-";
	char *words[WORDS_MOST] = {name, plan_option, nothing};
	int count = 3;
	char *bytes = strsep(&rest, " "), *more = strsep(&rest, " ");
	size_t plan_bytes = bytes ? strtoull(bytes, NULL, 10) : 0;
	size_t tables_bytes = more ? strtoull(more, NULL, 10) : 0;

	if (session->plan_text && session_add())
		return -1;
	struct options *options = &session->options;
	for (char *word; count < WORDS_MOST - 1 && (word = strsep(&rest, " ")) != NULL;)
		words[count++] = word;
	if (!plan_bytes || plan_bytes > PLAN_BYTES_MOST || tables_bytes > TABLES_BYTES_MOST ||
	    options_parse(options, count, words))
		return refuse();
	/* Who may only run this as root may not create files as root. Standard input is taken. */
	if (options->output || strcmp(options->plan, nothing) != 0 || options->is_controlled ||
	    options->tables)
		return fail(EXIT_CODE_USAGE,
			    "--output, --plan, --tables and --control do not go with --serve");
	options->plan = NULL; /* it has no path, and no tables beside it */
	if (opening_check_further())
		return -1;
	const char *text = take_bytes(plan_bytes);
	if (!text || plan_parse(&session->plan, text, plan_bytes) ||
	    (tables_bytes && take_tables(tables_bytes)))
		return -1;
	session->plan_text = text;
	session->plan_bytes = plan_bytes;
	return 0;
}

/* A text that is not one of the host's: its name has no slash. */
static int put_named(const char *name, const char *text)
{
	struct stream_fact head = {.name_bytes = (u32)strlen(name)};

	answer_begin(STREAM_FACT);
	answer_add(&head, sizeof(head));
	answer_add(name, head.name_bytes);
	answer_add(text, strlen(text));
	return answer_send();
}

/* What a probe costs here, or why that cannot be measured: nothing is refused for that. */
static int put_prices(void)
{
	static char text[PRICES_BYTES];
	const char *why;

	prices_measure(STDIN_FILENO, text, &why);
	return *text ? put_named("prices", text) : put_named("no-prices", why);
}

static int answer(char *line)
{
	char *rest = line;
	const char *what = strsep(&rest, " ");
	int failed;

	if (!strcmp(what, "prices") && !rest)
		failed = put_prices();
	else if (!rest)
		failed = refuse();
	else if (!strcmp(what, "find"))
		failed = facts_put_processes(rest, false);
	else if (!strcmp(what, "group") && *rest)
		failed = facts_put_processes(rest, true);
	else if (!strcmp(what, "facts"))
		failed = facts_put(atoi(rest), rest);
	else if (!strcmp(what, "file"))
		failed = put_file_at(rest);
	else if (!strcmp(what, "target"))
		failed = take_target(rest);
	else
		failed = refuse();
	if (failed)
		return -1;
	answer_begin(STREAM_ANSWERED);
	return answer_send();
}

static void put_failure(void)
{
	struct stream_error error = {
		.time_ns = monotonic_ns(),
		.exit_code = (u64)failure.code,
	};

	memcpy(error.text, failure.text, sizeof(error.text));
	answer_begin(STREAM_ERROR);
	answer_add(&error, sizeof(error));
	answer_send();
}

static int greet(void)
{
	return put_named("recorder", TLSTAX_VERSION);
}

/* Whether requests go on: a process that is asked about may have ended, which costs its answer. */
static bool goes_on(char *line)
{
	if (!answer(line))
		return true;
	if (failure.code != EXIT_CODE_TARGET)
		return false;
	put_failure();
	failure = (struct failure){0};
	return true;
}

/* Whether the recording of what was asked for begins. */
static bool is_record(const char *line)
{
	life.is_together = !strcmp(line, "record together");
	return session->plan_text && (life.is_together || !strcmp(line, "record"));
}

int serve(void)
{
	char *line;

	if (session->options.removes_itself)
		remove_self();
	if (!greet())
		do {
			line = next_line();
			if (!line)
				_exit(EXIT_CODE_OK);
		} while (!is_record(line) && goes_on(line));
	for (u32 i = 0; life.is_together && i < sessions_count(); i++)
		if (session_of(i)->options.budget > 0) /* which chooses when windows end */
			fail(EXIT_CODE_USAGE, "windows end together only without --budget");
	if (failure.code)
		put_failure();
	alarm(0);
	life.is_on = true;
	life.heard_ns = monotonic_ns();
	return failure.code ? -1 : 0;
}

bool serve_is_together(void)
{
	return life.is_together;
}

int serve_life_line(void)
{
	return life.is_on ? STDIN_FILENO : -1;
}

bool serve_is_over(void)
{
	struct pollfd line = {.fd = serve_life_line(), .events = POLLIN};
	ssize_t got = 1;

	if (!life.is_on)
		return false;
	if (poll(&line, 1, 0) == 1) {
		input.at = 0;
		got = read(STDIN_FILENO, input.bytes, sizeof(input.bytes));
		input.used = got > 0 ? (size_t)got : 0;
		life.heard_ns = monotonic_ns();
	}
	if (memchr(input.bytes + input.at, 's', input.used - input.at))
		return true;
	input.at = input.used;
	if (got <= 0)
		fail(EXIT_CODE_IO, "whoever asked for the recording is gone: it ended and "
				   "everything is detached");
	else if (monotonic_ns() - life.heard_ns > SILENCE_NS)
		fail(EXIT_CODE_IO, "whoever asked for the recording was silent for 20 s: it ended "
				   "and everything is detached");
	return failure.code != 0;
}

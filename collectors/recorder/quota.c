// SPDX-License-Identifier: GPL-2.0-only
#include "quota.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "proc.h"
#include "stream.h"

enum { PATH_MOST = 4096, TEXT_BYTES = 8192 };

/* Whether a word stands in a list that is separated by commas. */
static bool is_listed(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += length)
		if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	return false;
}

/* The process's group for a controller ("": version 2), as /proc/PID/cgroup names it. */
static bool group_path(int pid, const char *controller, char *path)
{
	static struct lines lines;
	char name[64];
	bool is_found = false;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	if (!lines_open(&lines, name))
		return false;
	for (char *line; !is_found && (line = lines_next(&lines));) {
		char *list = strchr(line, ':'), *rest = list ? strchr(list + 1, ':') : NULL;
		if (!rest)
			continue;
		*rest = 0;
		is_found = *controller ? is_listed(list + 1, controller) : !list[1];
		if (is_found)
			snprintf(path, PATH_MOST, "%s", rest + 1);
	}
	lines_close(&lines);
	return is_found;
}

/* Where a hierarchy is mounted: the mount point, and the group that its root shows. */
static bool find_mount(const char *kind, const char *controller, char *root, char *top)
{
	static struct lines lines;
	char type[32], options[512];
	bool is_found = false;

	if (!lines_open(&lines, "/proc/self/mountinfo"))
		return false;
	for (char *line; !is_found && (line = lines_next(&lines));) {
		const char *behind = strstr(line, " - ");
		if (!behind || strlen(line) >= PATH_MOST ||
		    sscanf(line, "%*s %*s %*s %4095s %4095s", root, top) != 2 ||
		    sscanf(behind, " - %31s %*s %511s", type, options) != 2)
			continue;
		is_found = !strcmp(type, kind) && (!*controller || is_listed(options, controller));
	}
	lines_close(&lines);
	return is_found;
}

/* Open the counters of the group at `path`, and of those above it up to `top`. */
static void open_groups(struct quota *quota, char *path, size_t top_bytes)
{
	char name[PATH_MOST + 16];

	while (quota->groups_count < QUOTA_GROUPS_MOST) {
		snprintf(name, sizeof(name), "%s/cpu.stat", path);
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			quota->groups[quota->groups_count++].fd = fd;
		char *last = strrchr(path, '/');
		if (!last || (size_t)(last - path) < top_bytes)
			return;
		*last = 0;
	}
}

static bool open_hierarchy(struct quota *quota, int pid, const char *kind, const char *controller)
{
	static char group[PATH_MOST], root[PATH_MOST], place[3 * PATH_MOST];

	if (!group_path(pid, controller, group) || !find_mount(kind, controller, root, place))
		return false;
	size_t top = strlen(place), prefix = strcmp(root, "/") ? strlen(root) : 0;
	if (strncmp(group, root, prefix) != 0 || (prefix && group[prefix] && group[prefix] != '/'))
		return true; /* the group cannot be seen from here */
	const char *below = group + prefix;
	if (*below == '/')
		below++;
	if (*below)
		snprintf(place + top, sizeof(place) - top, "/%s", below);
	open_groups(quota, place, top);
	return true;
}

void quota_open(struct quota *quota, int pid)
{
	char path[64];

	if (!open_hierarchy(quota, pid, "cgroup", "cpu"))
		open_hierarchy(quota, pid, "cgroup2", "");
	snprintf(path, sizeof(path), "/proc/%d/net/netstat", pid);
	quota->netstat_fd = open(path, O_RDONLY | O_CLOEXEC);
}

static bool read_again(int fd, char *text)
{
	ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);

	text[got > 0 ? got : 0] = 0;
	return got > 0;
}

/* The number behind a name at the beginning of a line; 0: it is not there. */
static u64 number_behind(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at && (at == text || at[-1] == '\n') ? strtoull(at + strlen(name), NULL, 10) : 0;
}

bool quota_put(struct quota *quota)
{
	static char text[TEXT_BYTES];

	for (u32 i = 0; i < quota->groups_count; i++) {
		struct quota_group *group = &quota->groups[i];
		if (!read_again(group->fd, text))
			continue;
		struct stream_quota now = {i, number_behind(text, "nr_periods "),
					   number_behind(text, "nr_throttled ")};
		if (now.period_count == group->sent.period_count &&
		    now.throttled_count == group->sent.throttled_count)
			continue;
		struct stream_quota *frame = output_put(STREAM_QUOTA, sizeof(*frame));
		if (!frame)
			return false;
		*frame = group->sent = now;
	}
	return true;
}

void quota_forget(struct quota *quota)
{
	for (u32 i = 0; i < quota->groups_count; i++)
		quota->groups[i].sent = (struct stream_quota){0};
}

struct tcp_counts tcp_counts(const struct quota *quota)
{
	static char text[TEXT_BYTES];
	struct tcp_counts counts = {~0ULL, ~0ULL};

	if (quota->netstat_fd < 0 || !read_again(quota->netstat_fd, text))
		return counts;
	/* Two lines: names, and their numbers in the same order. */
	char *names = strstr(text, "TcpExt:"), *numbers = names ? strchr(names, '\n') : NULL;
	if (!numbers)
		return counts;
	*numbers++ = 0;
	char *name_left, *number_left;
	char *name = strtok_r(names, " ", &name_left);
	char *number = strtok_r(numbers, " \n", &number_left);
	while (name && number) {
		if (!strcmp(name, "DelayedACKs"))
			counts.delayed_acks = strtoull(number, NULL, 10);
		if (!strcmp(name, "ListenOverflows"))
			counts.listen_overflows = strtoull(number, NULL, 10);
		name = strtok_r(NULL, " ", &name_left);
		number = strtok_r(NULL, " \n", &number_left);
	}
	return counts;
}

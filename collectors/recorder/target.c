// SPDX-License-Identifier: GPL-2.0-only
#include "target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure.h"
#include "mappings.h"
#include "proc.h"

enum { THREADS_READ_MOST = 2048 }; /* of a process with very many, these are looked at */
enum { STATUS_MOST = 1 << 20 };	   /* a process may be in 65,536 groups, which come early in it */

/* A number of /proc/PID/status: the first behind its name, or the last. */
static u64 field_of(const char *status, const char *name, bool is_last)
{
	const char *line = strstr(status, name);

	/* A process may be named like a field. */
	while (line && line != status && line[-1] != '\n')
		line = strstr(line + 1, name);
	if (!line)
		return 0;
	line += strlen(name);
	const char *end = line + strcspn(line, "\n");
	if (is_last) {
		line = end;
		while (line[-1] >= '0' && line[-1] <= '9')
			line--;
	}
	return strtoull(line, NULL, 10);
}

enum { STAT_START_TICKS = 22, STAT_STACK_ADDRESS = 28 };

/* A field of /proc/PID/stat, by its number in proc(5) from 3 on. */
static u64 stat_field(int pid, int number)
{
	char path[64], text[2048];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	read_text(path, text, sizeof(text));
	char *at = strrchr(text, ')');
	for (int field = 2; at && field < number; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

bool target_has_executed(const struct target *target)
{
	u64 now = stat_field(target->pid, STAT_STACK_ADDRESS); /* 0: it has ended */

	return now && now != target->stack_address;
}

/* Who traces one of the threads: strace may follow a single one. 0: none, or none is shown. */
static int tracer_of(int pid)
{
	char path[64], status[4096];
	int tracer = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *threads = opendir(path);
	if (!threads)
		return 0;
	for (int left = THREADS_READ_MOST; left && !tracer; left--) {
		struct dirent *entry = readdir(threads);
		if (!entry)
			break;
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", pid, entry->d_name);
		if (read_text(path, status, sizeof(status)) > 0)
			tracer = (int)field_of(status, "TracerPid:", false);
	}
	closedir(threads);
	return tracer;
}

int target_open(struct target *target, int pid)
{
	static char status[STATUS_MOST];
	char path[64];

	target->pid = pid;
	target->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (target->pidfd < 0 && errno == ENOSYS)
		return fail(EXIT_CODE_HOST, "this kernel has no pidfd_open: it needs Linux 5.3");
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	if (read_text(path, status, sizeof(status)) <= 0)
		return fail(
			EXIT_CODE_TARGET,
			"process %d cannot be recorded: there is no such process, or /proc does "
			"not show it",
			pid);
	if (field_of(status, "Tgid:", false) != (u64)pid)
		return fail(EXIT_CODE_TARGET,
			    "process %d cannot be recorded: it is a thread of process %d", pid,
			    (int)field_of(status, "Tgid:", false));
	if (target->pidfd < 0)
		return fail(EXIT_CODE_TARGET, "process %d cannot be watched: %s", pid,
			    strerror(errno));
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	int maps = open(path, O_RDONLY | O_CLOEXEC);
	if (maps < 0)
		return fail(EXIT_CODE_TARGET,
			    "process %d cannot be recorded: its memory map cannot be read: %s. Run "
			    "as root",
			    pid, strerror(errno));
	close(maps);
	target->own_pid = (int)field_of(status, "NSpid:", true);
	if (!target->own_pid)
		target->own_pid = pid;
	target->threads_count = (u32)field_of(status, "Threads:", false);
	target->start_ticks = stat_field(pid, STAT_START_TICKS);
	target->stack_address = stat_field(pid, STAT_STACK_ADDRESS);
	return 0;
}

bool target_is_traced(const struct target *target)
{
	int tracer = tracer_of(target->pid);

	if (tracer)
		fail(EXIT_CODE_TARGET,
		     "process %d is not recorded: process %d traces it, and a probe could be lost "
		     "or end it; end the tracing, or give --traced if you know better",
		     target->pid, tracer);
	return tracer;
}

/* Of a process that has ended nothing is mapped, which is not what is wrong with the plan. */
static bool has_ended(const struct target *target)
{
	struct pollfd end = {.fd = target->pidfd, .events = POLLIN};

	return poll(&end, 1, 0) > 0;
}

static int verify_file(struct target *target, const struct plan *plan, u32 number)
{
	const struct plan_file *file = &plan->files[number];
	const char *wanted = *file->build_id ? file->build_id : "none";
	char found[65];

	struct mapping *mapping = mapping_find(file, found);
	if (has_ended(target))
		return fail(EXIT_CODE_TARGET, "process %d ended before it was attached to",
			    target->pid);
	if (!mapping && !strcmp(found, MAPPING_CLOSED))
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: the file that process %d has mapped cannot be "
			    "opened. Run as root",
			    file->path, target->pid);
	if (!mapping && *found)
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: the plan is for build-id %s, process %d runs %s: "
			    "plan again",
			    file->path, wanted, target->pid, found);
	if (!mapping)
		return fail(EXIT_CODE_TARGET,
			    "process %d has no file with build-id %s (%s in the plan): plan again",
			    target->pid, wanted, file->path);
	target->files[number] = mapping_open(target->pid, mapping);
	if (target->files[number] < 0)
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: the mapped file cannot be opened", file->path);
	mapping_assign(mapping, number);
	return 0;
}

/* An instruction that the plan probes. */
struct place {
	const char *name; /* of its line */
	u32 number, file;
	u64 offset;
	const u8 *code;
	u32 code_bytes;
};

static int verify_place(const struct target *target, const struct plan *plan,
			const struct place *place)
{
	u8 code[PLAN_CODE_MOST];
	const char *path = plan->files[place->file].path;
	/* As much as the kernel reads where it puts a probe. Of a page that was not in memory it
	 * would wait for the disk while the process cannot map memory, and ext4 of 6.18 warns in
	 * its log. */
	ssize_t got = pread(target->files[place->file], code, sizeof(code), (off_t)place->offset);

	if (got < (ssize_t)place->code_bytes || memcmp(code, place->code, place->code_bytes) != 0)
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: the code at %s %u (offset %#llx) is not that of "
			    "the plan: plan again",
			    path, place->name, place->number, place->offset);
	if (!target_address(target, place->file, place->offset))
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: %s %u (offset %#llx) is not mapped as code", path,
			    place->name, place->number, place->offset);
	return 0;
}

int target_verify(struct target *target, const struct plan *plan)
{
	mappings_read(target->pid);
	for (u32 i = 0; i < PLAN_FILES_MOST; i++)
		target->files[i] = -1;
	for (u32 i = 0; i < plan->files_count; i++)
		if (plan->files[i].is_used && verify_file(target, plan, i))
			return -1;
	for (u32 i = 0; i < plan->sites_count; i++) {
		const struct plan_site *site = &plan->sites[i];
		struct place place = {"site",	    i,		site->file,
				      site->offset, site->code, site->code_bytes};
		if (verify_place(target, plan, &place))
			return -1;
	}
	for (u32 i = 0; i < plan->stretch_sites_count; i++) {
		const struct plan_site *site = &plan->stretch_sites[i];
		struct place place = {"stretch-site", i,	  site->file,
				      site->offset,   site->code, site->code_bytes};
		if (verify_place(target, plan, &place))
			return -1;
	}
	for (u32 i = 0; i < plan->points_count; i++) {
		const struct plan_point *point = &plan->points[i];
		struct place place = {"point",	     i,		  point->file,
				      point->offset, point->code, point->code_bytes};
		if (verify_place(target, plan, &place))
			return -1;
	}
	return 0;
}

const char *target_program(const struct target *target)
{
	static char program[160];
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/exe", target->pid);
	ssize_t length = readlink(path, program, sizeof(program) - 1);
	if (length < 0)
		return "another program";
	program[length] = 0;
	for (ssize_t i = 0; i < length; i++)
		if ((unsigned char)program[i] < 0x20 || program[i] == 0x7f)
			program[i] = '?';
	return program;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "build_id.h"
#include "failure.h"
#include "output.h"
#include "proc.h"
#include "stream.h"

enum { MAPPINGS_MOST = 1024 };

/* Mappings of code. A file that is mapped more than once is opened once. */
static struct mapping {
	struct stream_mapping entry;
	char path[PLAN_PATH_MOST];
	s32 file; /* of the plan, -1: none */
	bool is_sent;
} mappings[MAPPINGS_MOST];
static u32 mappings_count;
static struct lines maps;

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

static u64 start_ticks_of(int pid)
{
	char path[64], text[2048];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	read_text(path, text, sizeof(text));
	char *at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

int target_open(struct target *target, int pid)
{
	char path[64], status[4096];

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
	if (field_of(status, "TracerPid:", false))
		return fail(
			EXIT_CODE_TARGET,
			"process %d is not recorded: process %d traces it, and a probe could be "
			"lost or end it; end the tracing",
			pid, (int)field_of(status, "TracerPid:", false));
	target->own_pid = (int)field_of(status, "NSpid:", true);
	if (!target->own_pid)
		target->own_pid = pid;
	target->threads_count = (u32)field_of(status, "Threads:", false);
	target->start_ticks = start_ticks_of(pid);
	return 0;
}

/* A descriptor of exactly the mapped file, -1: it cannot be opened. */
static int open_mapping(int pid, const struct mapping *mapping)
{
	const struct stream_mapping *entry = &mapping->entry;
	char path[PLAN_PATH_MOST + 64];
	struct stat found;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", pid, entry->start, entry->end);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	/* map_files needs a capability. Its path is good enough if it leads to the same file. */
	snprintf(path, sizeof(path), "/proc/%d/root%s", pid, mapping->path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &found) || found.st_ino != entry->inode ||
			major(found.st_dev) != entry->device_major ||
			minor(found.st_dev) != entry->device_minor)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void read_build_id(int pid, struct mapping *mapping)
{
	struct stream_mapping *entry = &mapping->entry;

	for (struct mapping *other = mappings; other < mapping; other++) {
		if (other->entry.inode != entry->inode ||
		    other->entry.device_major != entry->device_major ||
		    other->entry.device_minor != entry->device_minor)
			continue;
		entry->build_id_bytes = other->entry.build_id_bytes;
		memcpy(entry->build_id, other->entry.build_id, sizeof(entry->build_id));
		mapping->file = other->file;
		return;
	}
	int fd = open_mapping(pid, mapping);
	if (fd < 0)
		return;
	entry->build_id_bytes = build_id_of(fd, entry->build_id);
	close(fd);
}

static bool is_known(const struct mapping *mapping)
{
	for (u32 i = 0; i < mappings_count; i++)
		if (mappings[i].entry.start == mapping->entry.start &&
		    mappings[i].entry.inode == mapping->entry.inode)
			return true;
	return false;
}

static void read_mappings(int pid)
{
	char path[64], access[8];
	int place;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	if (!lines_open(&maps, path))
		return;
	for (char *line; (line = lines_next(&maps)) && mappings_count < MAPPINGS_MOST;) {
		struct mapping *mapping = &mappings[mappings_count];
		struct stream_mapping *entry = &mapping->entry;
		place = 0;
		if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu %n", &entry->start, &entry->end,
			   access, &entry->file_offset, &entry->device_major, &entry->device_minor,
			   &entry->inode, &place) < 7 ||
		    access[2] != 'x' || is_known(mapping))
			continue;
		snprintf(mapping->path, sizeof(mapping->path), "%s", place ? line + place : "");
		entry->path_bytes = (u32)strlen(mapping->path);
		mapping->file = -1;
		entry->build_id_bytes = 0;
		if (entry->inode)
			read_build_id(pid, mapping);
		mappings_count++;
	}
	lines_close(&maps);
}

u32 target_read_mappings(int pid)
{
	read_mappings(pid);
	return mappings_count;
}

const struct stream_mapping *target_mapping(u32 number, const char **path)
{
	*path = mappings[number].path;
	return &mappings[number].entry;
}

int target_open_mapping(int pid, u32 number)
{
	return open_mapping(pid, &mappings[number]);
}

bool target_send_mappings(struct target *target)
{
	read_mappings(target->pid);
	for (u32 i = 0; i < mappings_count; i++) {
		struct mapping *mapping = &mappings[i];
		if (mapping->is_sent)
			continue;
		struct stream_mapping *entry = output_put_alone(
			STREAM_MAPPING, sizeof(*entry) + mapping->entry.path_bytes);
		if (!entry)
			return false;
		*entry = mapping->entry;
		memcpy(entry + 1, mapping->path, mapping->entry.path_bytes);
		mapping->is_sent = true;
	}
	return true;
}

static void hex_of(const struct stream_mapping *entry, char text[65])
{
	for (u32 i = 0; i < entry->build_id_bytes; i++)
		sprintf(text + (size_t)2 * i, "%02x", entry->build_id[i]);
	text[(size_t)2 * entry->build_id_bytes] = 0;
}

/* The mapping of a file of the plan: that build, at the same path if there are several. */
static struct mapping *find_mapping(const struct plan_file *file, char found_id[65])
{
	struct mapping *same_build = NULL;
	char id[65];

	found_id[0] = 0;
	for (u32 i = 0; i < mappings_count; i++) {
		struct mapping *mapping = &mappings[i];
		bool is_path = !strcmp(mapping->path, file->path);
		hex_of(&mapping->entry, id);
		if (is_path)
			strcpy(found_id, *id ? id : "none");
		if (!mapping->entry.inode || strcmp(id, file->build_id) != 0)
			continue;
		if (is_path)
			return mapping;
		if (*id && !same_build)
			same_build = mapping;
	}
	return same_build;
}

static int verify_file(struct target *target, const struct plan *plan, u32 number)
{
	const struct plan_file *file = &plan->files[number];
	const char *wanted = *file->build_id ? file->build_id : "none";
	char found[65];

	struct mapping *mapping = find_mapping(file, found);
	if (!mapping && *found)
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: the plan is for build-id %s, process %d runs %s: "
			    "plan again",
			    file->path, wanted, target->pid, found);
	if (!mapping)
		return fail(EXIT_CODE_TARGET,
			    "process %d has no file with build-id %s (%s in the plan): plan again",
			    target->pid, wanted, file->path);
	target->files[number] = open_mapping(target->pid, mapping);
	if (target->files[number] < 0)
		return fail(EXIT_CODE_TARGET,
			    "%s cannot be probed: the mapped file cannot be opened", file->path);
	for (u32 i = 0; i < mappings_count; i++)
		if (mappings[i].entry.inode == mapping->entry.inode &&
		    mappings[i].entry.device_major == mapping->entry.device_major &&
		    mappings[i].entry.device_minor == mapping->entry.device_minor)
			mappings[i].file = (s32)number;
	return 0;
}

int target_verify(struct target *target, const struct plan *plan)
{
	u8 code[PLAN_CODE_MOST];

	read_mappings(target->pid);
	for (u32 i = 0; i < PLAN_FILES_MOST; i++)
		target->files[i] = -1;
	for (u32 i = 0; i < plan->files_count; i++)
		if (plan->files[i].is_used && verify_file(target, plan, i))
			return -1;
	for (u32 i = 0; i < plan->sites_count; i++) {
		const struct plan_site *site = &plan->sites[i];
		ssize_t got = pread(target->files[site->file], code, site->code_bytes,
				    (off_t)site->offset);
		if (got != (ssize_t)site->code_bytes ||
		    memcmp(code, site->code, site->code_bytes) != 0)
			return fail(
				EXIT_CODE_TARGET,
				"%s cannot be probed: the code at site %u (offset %#llx) is not "
				"that of the plan: plan again",
				plan->files[site->file].path, i, site->offset);
		if (!target_address(target, site->file, site->offset))
			return fail(EXIT_CODE_TARGET,
				    "%s cannot be probed: site %u (offset %#llx) is not mapped as "
				    "code",
				    plan->files[site->file].path, i, site->offset);
	}
	return 0;
}

u64 target_address(const struct target *target, u32 file, u64 offset)
{
	(void)target;
	for (u32 i = 0; i < mappings_count; i++) {
		const struct stream_mapping *entry = &mappings[i].entry;
		if (mappings[i].file == (s32)file && offset >= entry->file_offset &&
		    offset - entry->file_offset < entry->end - entry->start)
			return entry->start + offset - entry->file_offset;
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

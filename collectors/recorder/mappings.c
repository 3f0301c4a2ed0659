// SPDX-License-Identifier: GPL-2.0-only
#include "mappings.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "build_id.h"
#include "output.h"
#include "proc.h"
#include "session.h"
#include "walks.h"

#define mapped (session->code)

#define USER_END (1ULL << 48) /* arm64; on x86-64 half of it */

static struct lines maps;

int mapping_open(int pid, const struct mapping *mapping)
{
	const struct stream_mapping *entry = &mapping->entry;
	char path[PLAN_PATH_MOST + 64];
	struct stat found;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", pid, entry->start, entry->end);
	int fd = open_regular(path);
	if (fd >= 0)
		return fd;
	/* map_files needs a capability. Its path is good enough if it leads to the same file. */
	snprintf(path, sizeof(path), "/proc/%d/root%s", pid, mapping->path);
	fd = open_regular(path);
	if (fd >= 0 && (fstat(fd, &found) || found.st_ino != entry->inode ||
			major(found.st_dev) != entry->device_major ||
			minor(found.st_dev) != entry->device_minor)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The build-id of the file that begins at `start`, and where its code is mapped. Closes `fd`. */
static void read_elf(int fd, u64 start, struct mapping *mapping)
{
	struct stream_mapping *entry = &mapping->entry;
	u64 address;

	if (fd < 0)
		return;
	entry->build_id_bytes = build_id_of(fd, start, entry->build_id);
	mapping->has_bias = code_address_of(fd, start, entry->file_offset, &address);
	mapping->bias = entry->start - address;
	close(fd);
}

/* The kernel's own code in a process is a file in memory. */
static void read_vdso(int pid, struct mapping *mapping)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	read_elf(open(path, O_RDONLY | O_CLOEXEC), mapping->entry.start, mapping);
}

static bool is_same_file(const struct mapping *one, const struct mapping *other)
{
	return one->entry.inode == other->entry.inode &&
	       one->entry.device_major == other->entry.device_major &&
	       one->entry.device_minor == other->entry.device_minor;
}

static void read_file(int pid, struct mapping *mapping)
{
	for (struct mapping *other = mapped.mappings; other < mapping; other++) {
		if (!is_same_file(other, mapping))
			continue;
		mapping->file = other->file;
		break;
	}
	int fd = mapping_open(pid, mapping);
	mapping->is_closed = fd < 0;
	read_elf(fd, 0, mapping);
}

/* The mapping that is known to begin there, NULL: it is a new one. */
static struct mapping *known_mapping(const struct mapping *mapping)
{
	for (u32 i = 0; i < mapped.count; i++)
		if (mapped.mappings[i].entry.start == mapping->entry.start &&
		    mapped.mappings[i].entry.file_offset == mapping->entry.file_offset &&
		    is_same_file(&mapped.mappings[i], mapping))
			return &mapped.mappings[i];
	return NULL;
}

/* Forget mappings that were gone at the last look; the reader of the stream has them. */
static void forget_gone(void)
{
	u32 kept = 0;

	for (u32 i = 0; i < mapped.count; i++) {
		const struct mapping *mapping = &mapped.mappings[i];
		if (mapping->look != mapped.look && mapping->is_sent)
			continue;
		if (kept++ != i)
			mapped.mappings[kept - 1] = *mapping;
	}
	mapped.count = kept;
}

void mappings_read(int pid)
{
	char path[64], access[8];
	int place;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	if (!lines_open(&maps, path))
		return;
	if (pid != mapped.pid)
		mapped.count = 0;
	mapped.pid = pid;
	if (mapped.count == TARGET_CODE_MOST)
		forget_gone();
	mapped.look++;
	for (char *line; (line = lines_next(&maps));) {
		struct mapping *mapping = &mapped.mappings[mapped.count];
		struct stream_mapping *entry = &mapping->entry;
		place = 0;
		if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu %n", &entry->start, &entry->end,
			   access, &entry->file_offset, &entry->device_major, &entry->device_minor,
			   &entry->inode, &place) < 7 ||
		    access[2] != 'x')
			continue;
		struct mapping *known = known_mapping(mapping);
		if (known) {
			known->is_sent &= known->entry.end == entry->end;
			known->entry.end = entry->end;
			known->look = mapped.look;
			continue;
		}
		if (mapped.count == TARGET_CODE_MOST)
			continue;
		snprintf(mapping->path, sizeof(mapping->path), "%s", place ? line + place : "");
		entry->path_bytes = (u32)strlen(mapping->path);
		mapping->file = -1;
		mapping->look = mapped.look;
		mapping->has_bias = mapping->is_sent = mapping->is_closed = false;
		entry->build_id_bytes = entry->has_table = 0;
		if (entry->inode)
			read_file(pid, mapping);
		else if (!strcmp(mapping->path, "[vdso]"))
			read_vdso(pid, mapping);
		mapped.count++;
	}
	lines_close(&maps);
}

u32 target_read_mappings(int pid)
{
	mappings_read(pid);
	return mapped.count;
}

const struct stream_mapping *target_mapping(u32 number, const char **path)
{
	*path = mapped.mappings[number].path;
	return &mapped.mappings[number].entry;
}

int target_open_mapping(int pid, u32 number)
{
	return mapping_open(pid, &mapped.mappings[number]);
}

bool target_send_mappings(const struct target *target)
{
	mappings_read(target->pid);
	for (u32 i = 0; i < mapped.count; i++) {
		struct mapping *mapping = &mapped.mappings[i];
		u32 has_table = walks_has_table(&mapping->entry);
		if (mapping->is_sent && mapping->entry.has_table == has_table)
			continue;
		size_t bytes = sizeof(struct stream_mapping) + mapping->entry.path_bytes;
		if (!output_has_room(bytes + sessions_end_bytes()))
			return false;
		struct stream_mapping *entry = output_put_alone(STREAM_MAPPING, bytes);
		if (!entry)
			return false;
		mapping->entry.has_table = has_table;
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

struct mapping *mapping_find(const struct plan_file *file, char found_id[65])
{
	struct mapping *same_build = NULL;
	char id[65];

	found_id[0] = 0;
	for (u32 i = 0; i < mapped.count; i++) {
		struct mapping *mapping = &mapped.mappings[i];
		bool is_path = !strcmp(mapping->path, file->path);
		hex_of(&mapping->entry, id);
		if (is_path)
			strcpy(found_id, *id ? id : mapping->is_closed ? MAPPING_CLOSED : "none");
		if (!mapping->entry.inode || strcmp(id, file->build_id) != 0)
			continue;
		if (is_path)
			return mapping;
		if (*id && !same_build)
			same_build = mapping;
	}
	return same_build;
}

void mapping_assign(const struct mapping *mapping, u32 file)
{
	for (u32 i = 0; i < mapped.count; i++)
		if (is_same_file(&mapped.mappings[i], mapping))
			mapped.mappings[i].file = (s32)file;
}

u32 target_code(const struct target *target, struct code *code)
{
	u32 count = 0;

	(void)target;
	for (u32 i = 0; i < mapped.count; i++) {
		const struct mapping *mapping = &mapped.mappings[i];
		if (mapping->look != mapped.look || mapping->entry.end > USER_END)
			continue;
		code[count++] = (struct code){mapping->entry.start, mapping->entry.end,
					      mapping->bias, mapping->has_bias, &mapping->entry};
	}
	return count;
}

u64 target_address(const struct target *target, u32 file, u64 offset)
{
	(void)target;
	for (u32 i = 0; i < mapped.count; i++) {
		const struct stream_mapping *entry = &mapped.mappings[i].entry;
		if (mapped.mappings[i].file == (s32)file && offset >= entry->file_offset &&
		    offset - entry->file_offset < entry->end - entry->start)
			return entry->start + offset - entry->file_offset;
	}
	return 0;
}

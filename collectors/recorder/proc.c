// SPDX-License-Identifier: GPL-2.0-only
#include "proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *copy_file(const char *path, size_t most, struct stat *found, const char **why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t got = 0;

	memset(found, 0, sizeof(*found));
	if (fd < 0 || fstat(fd, found)) {
		*why = strerror(errno);
		return NULL;
	}
	size_t length = (size_t)found->st_size;
	*why = "it is no file, it is empty, or it is too large";
	u8 *bytes = MAP_FAILED;
	if (S_ISREG(found->st_mode) && length && length <= most)
		bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	while (bytes != MAP_FAILED && got < length) {
		ssize_t part = pread(fd, bytes + got, length - got, (off_t)got);
		if (part <= 0) {
			*why = part ? strerror(errno) : "it became shorter";
			munmap(bytes, length);
			bytes = MAP_FAILED;
		}
		got += part > 0 ? (size_t)part : 0;
	}
	close(fd);
	return bytes == MAP_FAILED ? NULL : bytes;
}

int open_regular(const char *path)
{
	int place = open(path, O_PATH | O_CLOEXEC), fd = -1;
	struct stat found;
	char again[32];

	if (place < 0)
		return -1;
	if (!fstat(place, &found) && S_ISREG(found.st_mode)) {
		snprintf(again, sizeof(again), "/proc/self/fd/%d", place);
		fd = open(again, O_RDONLY | O_CLOEXEC);
	}
	close(place);
	return fd;
}

ssize_t read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	text[0] = 0;
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, text, size - 1);
	close(fd);
	text[got > 0 ? got : 0] = 0;
	return got;
}

ssize_t read_text_again(int *fd, const char *path, char *text, size_t size)
{
	if (*fd < 0)
		*fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = *fd < 0 ? -1 : pread(*fd, text, size - 1, 0);
	text[got > 0 ? got : 0] = 0;
	return got;
}

bool lines_open(struct lines *lines, const char *path)
{
	lines->fd = open(path, O_RDONLY | O_CLOEXEC);
	lines->used = lines->at = 0;
	lines->is_over = lines->is_cut = false;
	return lines->fd >= 0;
}

char *lines_next(struct lines *lines)
{
	for (;;) {
		char *start = lines->text + lines->at;
		char *end = memchr(start, '\n', lines->used - lines->at);
		bool is_rest = lines->is_cut;
		if (end) {
			lines->is_cut = false;
		} else if (lines->is_over || lines->used - lines->at == sizeof(lines->text) - 1) {
			end = lines->used > lines->at ? lines->text + lines->used : NULL;
			lines->is_cut = end != NULL;
		}
		if (end) {
			*end = 0;
			lines->at = (size_t)(end - lines->text) + 1;
			if (lines->at > lines->used)
				lines->at = lines->used;
			if (is_rest)
				continue;
			return start;
		}
		if (lines->is_over)
			return NULL;
		lines->used -= lines->at;
		memmove(lines->text, start, lines->used);
		lines->at = 0;
		ssize_t got = read(lines->fd, lines->text + lines->used,
				   sizeof(lines->text) - 1 - lines->used);
		lines->is_over = got <= 0;
		lines->used += got > 0 ? (size_t)got : 0;
	}
}

void lines_close(struct lines *lines)
{
	close(lines->fd);
}

u32 read_cpus(const char *name, u32 *cpus, u32 most)
{
	char path[64], text[4096], *at = text;
	u32 count = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/%s", name);
	if (read_text(path, text, sizeof(text)) <= 0)
		return 0;
	while (*at >= '0' && *at <= '9') {
		u32 first = (u32)strtoul(at, &at, 10);
		u32 last = *at == '-' ? (u32)strtoul(at + 1, &at, 10) : first;
		for (u32 cpu = first; cpu <= last && count < most; cpu++)
			cpus[count++] = cpu;
		at += *at == ',';
	}
	return count;
}

void read_online(char *text, size_t size)
{
	static int fd = -1;

	read_text_again(&fd, "/sys/devices/system/cpu/online", text, size);
}

void read_host_times(u64 times[5])
{
	static int fd = -1;
	u64 tick_ns = NS_PER_S / (u64)sysconf(_SC_CLK_TCK);
	unsigned long long t[8] = {0};
	char text[512];

	read_text_again(&fd, "/proc/stat", text, sizeof(text));
	sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
	       &t[4], &t[5], &t[6], &t[7]);
	times[0] = (t[0] + t[1]) * tick_ns;
	times[1] = t[2] * tick_ns;
	times[2] = (t[5] + t[6]) * tick_ns;
	times[3] = t[7] * tick_ns;
	times[4] = (t[3] + t[4]) * tick_ns;
}

u64 read_resident_bytes(void)
{
	static int fd = -1;
	unsigned long long pages = 0;
	char text[128];

	read_text_again(&fd, "/proc/self/statm", text, sizeof(text));
	sscanf(text, "%*u %llu", &pages);
	return pages * (u64)sysconf(_SC_PAGESIZE);
}

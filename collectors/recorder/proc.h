/* SPDX-License-Identifier: GPL-2.0-only */
/* Texts of /proc and /sys. */
#ifndef TLSTAX_PROC_H
#define TLSTAX_PROC_H

#include <sys/stat.h>
#include <sys/types.h>

#include "types.h"

/*
 * A copy in memory of a file of 1 to `most` bytes, because it may change while it is read. NULL: it
 * cannot be read; *why says the reason.
 */
void *copy_file(const char *path, size_t most, struct stat *found, const char **why);

/* Opens a regular file; below 0: it cannot, or it is something else, which may wait or act. */
int open_regular(const char *path);

/* The beginning of a file as a string; its length, below 0: it cannot be read. */
ssize_t read_text(const char *path, char *text, size_t size);

/* The same of a file that is read again and again: it stays open. *fd is -1 at first. */
ssize_t read_text_again(int *fd, const char *path, char *text, size_t size);

/* Lines of a file, one at a time; long ones are cut. Only one file at a time. */
struct lines {
	int fd;
	size_t used, at;
	bool is_over, is_cut;
	char text[65536];
};

bool lines_open(struct lines *lines, const char *path);
char *lines_next(struct lines *lines);
void lines_close(struct lines *lines);

/* CPUs of /sys/devices/system/cpu/NAME (a list such as 0-3,6); how many were put into `cpus`. */
u32 read_cpus(const char *name, u32 *cpus, u32 most);

/* The list of CPUs that are online, as text. */
void read_online(char *text, size_t size);

/* User, system, interrupt, steal and idle time of the host. */
void read_host_times(u64 times[5]);

u64 read_resident_bytes(void);

#endif

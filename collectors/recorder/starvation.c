// SPDX-License-Identifier: GPL-2.0-only
#include "starvation.h"

#include <stdio.h>
#include <string.h>

#include "proc.h"

bool is_runnable(pid_t pid)
{
	char path[32], text[512];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_text(path, text, sizeof(text)) <= 0)
		return false;
	const char *name_end = strrchr(text, ')');
	return name_end && !strncmp(name_end, ") R", 3);
}

u64 own_wait_ns(void)
{
	static int fd = -1;
	unsigned long long wait_ns = 0;
	char text[128];

	read_text_again(&fd, "/proc/self/schedstat", text, sizeof(text));
	sscanf(text, "%*u %llu", &wait_ns);
	return wait_ns;
}

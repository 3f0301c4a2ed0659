// SPDX-License-Identifier: GPL-2.0-only
#include "failure.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct failure failure;

int fail(int code, const char *format, ...)
{
	va_list arguments;

	if (failure.code)
		return -1;
	failure.code = code;
	va_start(arguments, format);
	vsnprintf(failure.text, sizeof(failure.text), format, arguments);
	va_end(arguments);
	/* Names of files come from the target: nothing in them may steer a terminal. */
	for (char *at = failure.text; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
	return -1;
}

void tell(const char *format, ...)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	char line[640] = "tlstax-recorder: ";
	size_t used = strlen(line);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
	va_end(arguments);
	strcat(line, "\n");
	if (poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT)
		(void)!write(STDERR_FILENO, line, strlen(line));
}

// SPDX-License-Identifier: GPL-2.0-only
#include "control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"

static struct {
	bool is_on, is_asked;
	u64 cut_ns;
	char line[32];
	size_t used;
} control;

void control_open(void)
{
	control.is_on = true;
}

int control_line(void)
{
	return control.is_on ? STDIN_FILENO : -1;
}

static bool obey(const char *line)
{
	static const char word[] = "cut ";
	char *end;

	if (strncmp(line, word, strlen(word)) != 0)
		return false;
	const char *number = line + strlen(word);
	u64 ns = strtoull(number, &end, 10);
	if (*number < '0' || *number > '9' || *end)
		return false;
	control.cut_ns = ns;
	control.is_asked = true;
	return true;
}

bool control_take(void)
{
	char bytes[256];
	ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));

	for (ssize_t i = 0; i < got; i++) {
		bool is_end = bytes[i] == '\n';
		control.line[control.used] = is_end ? 0 : bytes[i];
		if (is_end && obey(control.line)) {
			control.used = 0;
		} else if (is_end || ++control.used == sizeof(control.line)) {
			fail(EXIT_CODE_USAGE, "standard input has a line that is no command: "
					      "give `cut NS`");
			return false;
		}
	}
	if (got < 0)
		fail(EXIT_CODE_IO, "standard input cannot be read: %s", strerror(errno));
	return got > 0;
}

bool control_cut(u64 *ns)
{
	bool is_asked = control.is_asked;

	control.is_asked = false;
	*ns = control.cut_ns;
	return is_asked;
}

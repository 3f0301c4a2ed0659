/* SPDX-License-Identifier: GPL-2.0-only */
/* The one error of a run: the first that occurs, told on stderr and in the stream. */
#ifndef TLSTAX_FAILURE_H
#define TLSTAX_FAILURE_H

/* tlstax.ExitCode; docs/exit-codes.md */
enum exit_code {
	EXIT_CODE_OK = 0,
	EXIT_CODE_FAILED = 1,
	EXIT_CODE_USAGE = 2,
	EXIT_CODE_HOST = 3,
	EXIT_CODE_TARGET = 4,
	EXIT_CODE_IO = 6,
	EXIT_CODE_BUDGET = 7,
	EXIT_CODE_INTERRUPTED = 130,
};

struct failure {
	int code;
	char text[512];
};

extern struct failure failure;

/* Keep the error, unless there is one already. Always -1. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A sentence for the operator. Left out if stderr would block. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

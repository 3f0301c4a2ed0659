/* SPDX-License-Identifier: GPL-2.0-only */
/* The command line: what is to be recorded, and where the stream goes. */
#ifndef TLSTAX_OPENING_H
#define TLSTAX_OPENING_H

#include "options.h"

/*
 * As many files as may be open: each target holds hundreds. A standard stream that is closed would
 * be the number of one of them, with a message in a stream: it is filled.
 */
void opening_files(void);

/* Whether the options of the target whose turn it is go with those of the targets before it. */
int opening_check_further(void);

/* A target for each part of the command line: --next is between them. 1: nothing to record. */
int opening_sessions(int count, char **arguments);

/* The descriptor of the stream. -1: there is none. */
int opening_output(const struct options *options);

/* Remove the file of a recording that never began: it would be in the way of the next try. */
void opening_forget_output(const struct options *options);

#endif

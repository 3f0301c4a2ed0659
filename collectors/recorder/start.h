/* SPDX-License-Identifier: GPL-2.0-only */
/* What comes before the first window: the plan, whether it is for this host, the first frames. */
#ifndef TLSTAX_START_H
#define TLSTAX_START_H

#include "engine.h"
#include "options.h"

/* The text of a plan file, which is parsed into `plan`; NULL: it is refused. */
const char *start_read_plan(const char *path, struct plan *plan, size_t *length);

/* Whether plan, options and this host fit. */
int start_check(const struct options *options, const struct plan *plan);

int start_settings(const struct options *options, const struct plan *plan,
		   const struct target *target, struct settings *settings);

/* Open the unwind tables that were given, or that are beside the plan. */
int start_tables(const struct options *options, const struct plan *plan);

/* The frames that stand once at the beginning: the recording, the plan, mappings. */
int start_put(const struct engine *engine, const struct plan *plan, struct target *target,
	      const struct options *options, const char *text, size_t length);

#endif

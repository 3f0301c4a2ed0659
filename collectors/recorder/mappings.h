/* SPDX-License-Identifier: GPL-2.0-only */
/* The code that is mapped into the target. */
#ifndef TLSTAX_MAPPINGS_H
#define TLSTAX_MAPPINGS_H

#include "types.h"

#include "stream.h"
#include "target.h"

/* A mapping of code. One that is gone is kept until there is no room for others. */
struct mapping {
	struct stream_mapping entry;
	char path[PLAN_PATH_MOST];
	s32 file; /* of the plan, -1: none */
	u64 bias; /* added to an address of its file gives that of the process */
	bool has_bias, is_sent, is_closed; /* is_closed: its file could not be opened */
	u32 look;			   /* at which it was seen last */
};

/* Those of a process, and one that is being read. */
struct mappings {
	struct mapping mappings[TARGET_CODE_MOST + 1];
	u32 count, look;
	int pid;
};

/* Look which code is mapped now. */
void mappings_read(int pid);

/* Instead of a build-id: the file could not be opened. */
#define MAPPING_CLOSED "unknown"

/* The mapping of a file of the plan: that build, at the same path if there are several. NULL: there
 * is none, and `found_id` has the build-id of the file at that path. */
struct mapping *mapping_find(const struct plan_file *file, char found_id[65]);

/* All mappings of the same file are of this file of the plan. */
void mapping_assign(const struct mapping *mapping, u32 file);

/* A descriptor of exactly the mapped file, -1: it cannot be opened. */
int mapping_open(int pid, const struct mapping *mapping);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The process that is recorded: whether it is the one that the plan is for, and when it ends. */
#ifndef TLSTAX_TARGET_H
#define TLSTAX_TARGET_H

#include "plan.h"

enum { TARGET_CODE_MOST = 1024 };

struct target {
	int pid, own_pid;
	int pidfd;
	u64 start_ticks;
	u64 stack_address;	    /* where its first thread's begins: another at each exec */
	u32 threads_count;	    /* when it was opened */
	int files[PLAN_FILES_MOST]; /* descriptor of each file of the plan, -1: not in use */
};

/* Open process `pid`. Fails with a sentence if it cannot be recorded. */
int target_open(struct target *target, int pid);

/* Whether a debugger or strace traces one of its threads; failure says who. */
bool target_is_traced(const struct target *target);

/* Whether it executed another program since it was opened: nobody watches for that before the
 * programs are attached. */
bool target_has_executed(const struct target *target);

/* Compare the target's files with the plan: build-ids, and the code at every site. */
int target_verify(struct target *target, const struct plan *plan);

/* Look which code is mapped, and put a frame for what is new or has a table now; false: no room. */
bool target_send_mappings(const struct target *target);

struct stream_mapping;

/* A mapping of code that the target has. */
struct code {
	u64 start, end;
	u64 bias; /* added to an address of its file gives that of the process */
	bool has_bias;
	const struct stream_mapping *entry;
};

/* The mappings of code at the last look, at most TARGET_CODE_MOST; how many. */
u32 target_code(const struct target *target, struct code *code);

/* The mappings of code of a process, by number from 0: how many there are, each with its path, and
 * a descriptor of the mapped file (-1: it cannot be opened). */
u32 target_read_mappings(int pid);
const struct stream_mapping *target_mapping(u32 number, const char **path);
int target_open_mapping(int pid, u32 number);

/* The process address of a place in a file of the plan, 0: it is not mapped. */
u64 target_address(const struct target *target, u32 file, u64 offset);

/* The program that the target runs now, for a sentence. */
const char *target_program(const struct target *target);

#endif

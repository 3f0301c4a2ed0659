/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is recorded of one target: all that it has for itself.
 *
 * One recorder records several. One thread does all of it, so the target whose turn it is can stand
 * in one place, `session`. Whatever is not in here is the host's, or the recorder's own.
 */
#ifndef TLSTAX_SESSION_H
#define TLSTAX_SESSION_H

#include "failure.h"
#include "function_probes.h"
#include "mappings.h"
#include "quota.h"
#include "schedule.h"
#include "stretches.h"
#include "totals.h"
#include "walks.h"

enum progress {
	PROGRESS_OPENED,
	PROGRESS_STARTED, /* attached, and its first frames are in the stream */
	PROGRESS_RECORDING,
	PROGRESS_DETACHED, /* its last window had no room yet */
	PROGRESS_READ,	   /* it had */
	PROGRESS_OVER,
};

struct session {
	u32 number; /* of the target in the stream */
	enum progress progress;
	bool is_started; /* when it was detached */
	bool is_gone;	 /* the process has ended */
	struct options options;
	struct plan plan;
	const char *plan_text;
	size_t plan_bytes;
	struct target target;
	struct engine engine;
	struct sampler sampler;
	struct functions functions;
	struct stretches stretches;
	struct walks walks;
	char tables_path[PLAN_PATH_MOST]; /* if they are beside the plan */
	struct mappings code;
	struct roles roles;
	struct accounts accounts;
	struct counters counters;
	u8 stacks_sent[STACK_IDS_MOST / 8];
	struct quota quota;
	struct meter meter;
	struct windows windows;
	struct schedule schedule;
	u64 cpu_ns; /* of the recorder, for this target: up to the end of its last turn */
	u64 named;  /* of the kernel's addresses the last: kernel_names_put() */
	char ending[192];
	u64 end_ns, detach_ns;	/* when it was detached, and how long that took */
	struct failure failure; /* why its recording ended before the others' */
};

extern struct session *session;

/* Make room for one more target, whose turn it then is. -1: there is none. */
int session_add(void);

u32 sessions_count(void);

struct session *session_of(u32 number);

/* Room that mappings and names leave for the last frames of all targets. */
size_t sessions_end_bytes(void);

/* Whose turn it is. */
void session_turn(u32 number);

/*
 * CPU time of the recorder for the target whose turn it is. What is for none of them, as writing
 * the stream and the watchdog, is that of the first one that is not over: the sum over all is that
 * of the processes.
 */
u64 session_cpu_ns(void);

/* CPU time that another thread used for a target. The threads that do so exclude each other. */
void session_charge(u32 number, u64 cpu_ns);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The plan file, as far as the recorder needs it (docs/plan-file.md).
 *
 * Text, one item a line, in a fixed order of words. The reader is strict: what it does not know,
 * what is twice or out of bounds, is an error with the number of the line.
 */
#ifndef TLSTAX_PLAN_H
#define TLSTAX_PLAN_H

#include "types.h"

enum {
	PLAN_BYTES_MOST = 4 << 20,
	PLAN_SITES_MOST = 256, /* MAX_SITES of ledger.h */
	PLAN_FILES_MOST = 256,
	PLAN_SPANS_MOST = 512, /* STREAM_SPANS_MOST */
	PLAN_CODE_MOST = 16,
	PLAN_PATH_MOST = 4096,
	PLAN_WORD_MOST = 72,
	PLAN_FUNCTIONS_MOST = 63, /* MAX_FUNCTIONS of functions.h, less the calibration's */
	PLAN_POINTS_MOST = 512,
};

enum level {
	LEVEL_SAMPLE,
	LEVEL_SIGNATURE, /* handshakes, of their operations signatures */
	LEVEL_HANDSHAKE,
	LEVEL_CONNECTION,
	LEVEL_FLOW,
	LEVEL_COMMAND,
	LEVEL_RECORD,
	LEVELS
};

enum accessor {
	ACCESSOR_VERSION,
	ACCESSOR_RWSTATE,
	ACCESSOR_SHUTDOWN,
	ACCESSOR_STATE,
	ACCESSOR_HIT,
	ACCESSOR_SESSION,
	ACCESSOR_SESSION_CIPHER,
	ACCESSOR_CIPHER_ID,
	ACCESSOR_SERVER,
	ACCESSORS,
};

struct plan_file {
	char path[PLAN_PATH_MOST]; /* as the target sees it; unusual bytes as %XX */
	char build_id[65];	   /* hex digits, "" for none */
	bool is_used;		   /* a site or a span is in it */
};

struct plan_site {
	u32 file;
	bool is_exit, is_return;
	bool is_dense;	 /* a command may cross it: attached with the ledger */
	int lowest;	 /* level from which on it is attached; of dense ones flow */
	bool is_covered; /* by events of sockets, where this host has them */
	u64 offset;	 /* in the file */
	u64 cookie;
	double price_ns; /* of a hit in a loop, without its program */
	u8 code[PLAN_CODE_MOST];
	u32 code_bytes;
};

/* A function whose calls are counted, by what its probes are. */
struct plan_function {
	bool is_entry_stepped, is_exit_stepped; /* single-stepped by the kernel */
	bool has_exit;				/* else calls are counted, not timed */
	bool is_return;				/* the exit is a return probe */
};

/* A probe of such a function. */
struct plan_point {
	u32 file, function;
	bool is_exit, is_return;
	u64 offset; /* in the file */
	u64 cookie; /* of functions.h */
	u8 code[PLAN_CODE_MOST];
	u32 code_bytes;
};

struct plan_span {
	u32 file;
	u64 offset, bytes;
};

struct plan {
	enum level level;
	u32 role; /* of the target: 0 server, 1 client, 2 tunnel or proxy */
	bool is_guarded, has_samples, has_user_stacks;
	char architecture[PLAN_WORD_MOST], kernel[PLAN_WORD_MOST];
	s32 accessors[ACCESSORS];
	struct plan_file files[PLAN_FILES_MOST];
	u32 files_count;
	struct plan_site sites[PLAN_SITES_MOST];
	u32 sites_count;
	struct plan_site stretch_sites[PLAN_SITES_MOST]; /* beside them in calibration stretches */
	u32 stretch_sites_count;
	struct plan_function functions[PLAN_FUNCTIONS_MOST];
	u32 functions_count;
	struct plan_point points[PLAN_POINTS_MOST];
	u32 points_count;
	struct plan_span spans[PLAN_SPANS_MOST];
	u32 spans_count;
};

extern const char *const level_names[LEVELS];

/* The level of that name, -1: there is none. */
int level_by_name(const char *name, size_t length);

/* Read a plan from text. -1: it is refused, and failure says why. */
int plan_parse(struct plan *plan, const char *text, size_t length);

#endif

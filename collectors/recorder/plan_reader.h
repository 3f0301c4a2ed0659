/* SPDX-License-Identifier: GPL-2.0-only */
/* What the readers of a plan's lines share. */
#ifndef TLSTAX_PLAN_READER_H
#define TLSTAX_PLAN_READER_H

#include "plan.h"
#include "words.h"

struct plan_reader {
	struct plan *plan;
	u32 line, seen;
};

/* Fail with the number of the line. */
int plan_refuse(const struct plan_reader *reader, const char *why);

/* Whether a word is one of two, and which. */
bool plan_one_of(const struct word *word, const char *yes, const char *no, bool *value);

/* `file=N offset=N` */
int plan_read_place(struct plan_reader *reader, struct words *words, u32 *file, u64 *offset);

/* `bytes=HEX`: how many, 0: they are none or too many. */
u32 plan_read_code(struct words *words, u8 code[PLAN_CODE_MOST]);

/* Whether the description follows that the recorder skips. */
bool plan_is_described(const struct words *words);

/* Lines of functions and of their probes. */
int plan_read_function(struct plan_reader *reader, struct words *words);
int plan_read_point(struct plan_reader *reader, struct words *words);

#endif

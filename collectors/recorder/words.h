/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading the words of a line, which end with a space or with the line. */
#ifndef TLSTAX_WORDS_H
#define TLSTAX_WORDS_H

#include "types.h"

struct words {
	const char *at, *end;
};

struct word {
	const char *at;
	size_t length;
};

/* The next word; false: there is none, or it is empty. */
bool next_word(struct words *words, struct word *word);

/* The value of the next word, which has to be NAME=VALUE. */
bool next_value(struct words *words, const char *name, struct word *value);

bool is_word(const struct word *word, const char *text);

/* Copy a word; false: it is longer than that, or has bytes that no plan has. */
bool copy_word(const struct word *word, char *text, size_t size);

/* A whole number: decimal, or hexadecimal behind 0x; false: it is none, or more than `most`. */
bool number_of(const struct word *word, u64 most, u64 *number);

/* Hex digits as bytes; how many, 0: they are none or too many. */
u32 bytes_of(const struct word *word, u8 *bytes, u32 most);

#endif

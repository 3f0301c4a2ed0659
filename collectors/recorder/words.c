// SPDX-License-Identifier: GPL-2.0-only
#include "words.h"

#include <string.h>

bool next_word(struct words *words, struct word *word)
{
	const char *start = words->at;
	const char *end =
		start < words->end ? memchr(start, ' ', (size_t)(words->end - start)) : NULL;

	if (!end)
		end = words->end;
	*word = (struct word){start, (size_t)(end - start)};
	words->at = end < words->end ? end + 1 : end;
	return word->length > 0;
}

bool next_value(struct words *words, const char *name, struct word *value)
{
	size_t length = strlen(name);

	if (!next_word(words, value) || value->length <= length + 1 ||
	    memcmp(value->at, name, length) != 0 || value->at[length] != '=')
		return false;
	value->at += length + 1;
	value->length -= length + 1;
	return true;
}

bool is_word(const struct word *word, const char *text)
{
	return word->length == strlen(text) && !memcmp(word->at, text, word->length);
}

bool copy_word(const struct word *word, char *text, size_t size)
{
	if (word->length >= size)
		return false;
	for (size_t i = 0; i < word->length; i++)
		if (word->at[i] <= ' ' || word->at[i] > '~')
			return false;
	memcpy(text, word->at, word->length);
	text[word->length] = 0;
	return true;
}

static int digit_of(char letter)
{
	if (letter >= '0' && letter <= '9')
		return letter - '0';
	if (letter >= 'a' && letter <= 'f')
		return letter - 'a' + 10;
	return 16;
}

bool number_of(const struct word *word, u64 most, u64 *number)
{
	const char *at = word->at, *end = at + word->length;
	u64 base = 10;

	*number = 0;
	if (word->length > 2 && at[0] == '0' && at[1] == 'x') {
		base = 16;
		at += 2;
	}
	if (at == end)
		return false;
	for (; at < end; at++) {
		u64 digit = (u64)digit_of(*at);
		if (digit >= base || *number > (~0ULL - digit) / base)
			return false;
		*number = *number * base + digit;
	}
	return *number <= most;
}

u32 bytes_of(const struct word *word, u8 *bytes, u32 most)
{
	u32 count = (u32)(word->length / 2);

	if (word->length % 2 || word->length / 2 > most)
		return 0;
	for (u32 i = 0; i < count; i++) {
		int high = digit_of(word->at[2 * i]), low = digit_of(word->at[2 * i + 1]);
		if (high > 15 || low > 15)
			return 0;
		bytes[i] = (u8)(high << 4 | low);
	}
	return count;
}

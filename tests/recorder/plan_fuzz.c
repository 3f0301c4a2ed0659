// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mutants of a plan file for the recorder's reader: plan_fuzz FILE COUNT SEED.
 *
 * Built with the sanitizers, which end it at the first access out of bounds. The text is in memory
 * of exactly its length, so that one byte too many is noticed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "fuzzing.h"
#include "plan.h"

static size_t mutate(char *text, size_t length, size_t most)
{
	static const char *const words[] = {
		"0x",	   " ",	   "\n", "=",	   "none", "99999999999999999999",
		"site 0 ", "end ", "\0", "about ", "-1",   "%00"};

	for (unsigned long long times = 1 + chance(4); times--;) {
		size_t at = length ? chance(length) : 0, part = chance(64);
		const char *word = words[chance(COUNT(words))];
		switch (chance(5)) {
		case 0: /* a bit */
			if (length)
				text[at] ^= (char)(1 << chance(8));
			break;
		case 1: /* a cut */
			length = at;
			break;
		case 2: /* a part that is gone */
			if (part > length - at)
				part = length - at;
			memmove(text + at, text + at + part, length - at - part);
			length -= part;
			break;
		case 3: /* a part that is there twice */
			if (part > length - at)
				part = length - at;
			if (length + part > most)
				break;
			memmove(text + at + part, text + at, length - at);
			length += part;
			break;
		default: /* a word */
			part = strlen(word) + 1;
			if (length >= part && at <= length - part)
				memcpy(text + at, word, part - 1);
		}
	}
	return length;
}

int main(int count, char **arguments)
{
	static struct plan plan;
	static char seed_text[PLAN_BYTES_MOST], mutant[2 * PLAN_BYTES_MOST];
	unsigned long long taken = 0;

	size_t length = 0;
	unsigned long long runs =
		count == 4 ? begin_fuzzing(arguments, seed_text, sizeof(seed_text), &length) : 0;
	if (!runs)
		return 2;
	if (plan_parse(&plan, seed_text, length)) {
		fprintf(stderr, "the seed is refused: %s\n", failure.text);
		return 1;
	}
	for (unsigned long long run = 0; run < runs; run++) {
		memcpy(mutant, seed_text, length);
		size_t bytes = mutate(mutant, length, sizeof(mutant));
		char *exact = malloc(bytes ? bytes : 1);
		if (!exact)
			return 2;
		memcpy(exact, mutant, bytes);
		failure.code = 0;
		failure.text[0] = 0;
		bool is_refused = plan_parse(&plan, exact, bytes) != 0;
		free(exact);
		if (is_refused != (failure.code == EXIT_CODE_USAGE && failure.text[0])) {
			fprintf(stderr, "run %llu: refused without a reason\n", run);
			return 1;
		}
		taken += !is_refused;
	}
	printf("%llu mutants, %llu taken\n", runs, taken);
	return 0;
}

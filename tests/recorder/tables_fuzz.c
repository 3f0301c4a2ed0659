// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mutants of a file of unwind tables for the recorder's reader: tables_fuzz FILE COUNT SEED.
 *
 * Built with the sanitizers. Most mutants get a checksum that fits, so that what follows it is
 * reached. Of a file that is taken, every row is looked for as the programs in the kernel do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "failure.h"
#include "fuzzing.h"
#include "tables.h"

enum { FILE_MOST = 1 << 22 };

static size_t mutate(u8 *bytes, size_t length)
{
	static const u32 numbers[] = {0, 1, 31, 33, 255, 0x7fffffff, 0x80000000, 0xffffffff};

	for (unsigned long long times = 1 + chance(3); times--;) {
		/* Mostly in the head and the list of tables. */
		size_t most = chance(2) && length > 512 ? 512 : length;
		size_t at = most > 4 ? chance(most - 4) : 0;
		switch (chance(4)) {
		case 0:
			bytes[at] ^= (u8)(1 << chance(8));
			break;
		case 1:
			if (length > 4)
				memcpy(bytes + at / 4 * 4, &numbers[chance(COUNT(numbers))], 4);
			break;
		case 2:
			if (!chance(8))
				length = at;
			break;
		default:
			if (length > 4)
				bytes[at] = (u8)chance(256);
		}
	}
	if (length > sizeof(struct tables_head) && chance(8)) {
		struct tables_head *head = (void *)bytes;
		size_t checked = offsetof(struct tables_head, tables_count);
		head->crc32 = (u32)crc32(0, bytes + checked, (u32)(length - checked));
	}
	return length;
}

/* Read what the programs would read. */
static u64 follow(const struct tables *found)
{
	u64 sum = 0;

	for (u32 i = 0; i < found->tables_count; i++) {
		const struct table *table = &found->tables[i];
		const u32 *firsts = found->words + table->index;
		for (u32 bucket = 0; bucket < table->buckets; bucket++)
			for (u32 row = firsts[bucket] - 1; row < firsts[bucket + 1]; row++) {
				u32 word = found->words[row];
				if ((word >> 8 & 7) == ROW_RULE)
					sum += found->rules[word >> 11].kind;
			}
	}
	return sum;
}

int main(int count, char **arguments)
{
	static u8 seed[FILE_MOST];
	unsigned long long taken = 0;
	struct tables found;
	u64 sum = 0;

	size_t length = 0;
	unsigned long long runs =
		count == 4 ? begin_fuzzing(arguments, seed, sizeof(seed), &length) : 0;
	if (!runs)
		return 2;
	if (tables_parse(&found, seed, length)) {
		fprintf(stderr, "the seed is refused: %s\n", failure.text);
		return 1;
	}
	for (unsigned long long run = 0; run < runs; run++) {
		u8 *exact = malloc(length);
		if (!exact)
			return 2;
		memcpy(exact, seed, length);
		size_t bytes = mutate(exact, length);
		u8 *cut = realloc(exact, bytes ? bytes : 1);
		failure.code = 0;
		failure.text[0] = 0;
		bool is_refused = tables_parse(&found, cut, bytes) != 0;
		if (!is_refused)
			sum += follow(&found);
		free(cut);
		if (is_refused != (failure.code == EXIT_CODE_USAGE && failure.text[0])) {
			fprintf(stderr, "run %llu: refused without a reason\n", run);
			return 1;
		}
		taken += !is_refused;
	}
	printf("%llu mutants, %llu taken, %llu\n", runs, taken, (unsigned long long)sum);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* What the fuzzers of the recorder's readers share: chance that a seed repeats, and the first file.
 */
#ifndef TLSTAX_FUZZING_H
#define TLSTAX_FUZZING_H

#include <stdio.h>
#include <stdlib.h>

static unsigned long long state;

/* A number below `most`. */
static unsigned long long chance(unsigned long long most)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % most;
}

/* Read FILE into memory, and take COUNT and SEED; how many mutants to make, 0: wrong arguments. */
static unsigned long long begin_fuzzing(char **arguments, void *seed, size_t most, size_t *length)
{
	FILE *file = fopen(arguments[1], "rb");

	if (!file)
		return 0;
	*length = fread(seed, 1, most, file);
	fclose(file);
	state = strtoull(arguments[3], NULL, 10) | 1;
	return strtoull(arguments[2], NULL, 10);
}

#endif

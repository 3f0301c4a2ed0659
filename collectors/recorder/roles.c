// SPDX-License-Identifier: GPL-2.0-only
/*
 * Roles of threads that serve no client, by the functions that they never leave.
 *
 * Their return addresses are at the base of a thread's stack, next to its start routine, which is
 * in its control block. That memory is read a few times at most for each such thread, compared with
 * the functions that the plan names, and dropped: the number of the function is all that is sent.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "failure.h"
#include "totals.h"

enum { STACK_BYTES = 16384, CONTROL_BYTES = 2048, WORDS = (STACK_BYTES + CONTROL_BYTES) / 8 };

static struct span {
	u64 start, end;
} spans[PLAN_SPANS_MOST];
static u32 spans_count;
static u64 lowest = ~0ULL, highest;
static char memory_path[32];

int roles_prepare(const struct plan *plan, const struct target *target)
{
	snprintf(memory_path, sizeof(memory_path), "/proc/%d/mem", target->pid);
	for (u32 i = 0; i < plan->spans_count; i++) {
		u64 start = target_address(target, plan->spans[i].file, plan->spans[i].offset);
		u64 end = start ? start + plan->spans[i].bytes : 0;
		spans[spans_count++] = (struct span){start, end};
		if (start && start < lowest)
			lowest = start;
		if (end > highest)
			highest = end;
	}
	return 0;
}

u32 role_span(u64 stack_base)
{
	static u64 words[WORDS];

	if (!highest || stack_base < STACK_BYTES)
		return 0;
	int memory = open(memory_path, O_RDONLY | O_CLOEXEC);
	if (memory < 0)
		return 0;
	ssize_t got = pread(memory, words, sizeof(words), (off_t)(stack_base - STACK_BYTES));
	close(memory);
	/* The function nearest to the base of the stack decides. */
	for (ssize_t i = got / 8 - 1; i >= 0; i--) {
		if (words[i] < lowest || words[i] >= highest)
			continue;
		for (u32 span = 0; span < spans_count; span++)
			if (words[i] >= spans[span].start && words[i] < spans[span].end)
				return span + 1;
	}
	return 0;
}

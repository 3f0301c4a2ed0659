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
#include "session.h"
#include "totals.h"

#define roles (session->roles)

enum { STACK_BYTES = 16384, CONTROL_BYTES = 2048, WORDS = (STACK_BYTES + CONTROL_BYTES) / 8 };

int roles_prepare(const struct plan *plan, const struct target *target)
{
	roles.lowest = ~0ULL;
	snprintf(roles.memory_path, sizeof(roles.memory_path), "/proc/%d/mem", target->pid);
	for (u32 i = 0; i < plan->spans_count; i++) {
		u64 start = target_address(target, plan->spans[i].file, plan->spans[i].offset);
		u64 end = start ? start + plan->spans[i].bytes : 0;
		roles.spans[roles.spans_count++] = (struct role_span){start, end};
		if (start && start < roles.lowest)
			roles.lowest = start;
		if (end > roles.highest)
			roles.highest = end;
	}
	return 0;
}

u32 role_span(u64 stack_base)
{
	static u64 words[WORDS];

	if (!roles.highest || stack_base < STACK_BYTES)
		return 0;
	int memory = open(roles.memory_path, O_RDONLY | O_CLOEXEC);
	if (memory < 0)
		return 0;
	ssize_t got = pread(memory, words, sizeof(words), (off_t)(stack_base - STACK_BYTES));
	close(memory);
	/* The function nearest to the base of the stack decides. */
	for (ssize_t i = got / 8 - 1; i >= 0; i--) {
		if (words[i] < roles.lowest || words[i] >= roles.highest)
			continue;
		for (u32 span = 0; span < roles.spans_count; span++)
			if (words[i] >= roles.spans[span].start && words[i] < roles.spans[span].end)
				return span + 1;
	}
	return 0;
}

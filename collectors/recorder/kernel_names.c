// SPDX-License-Identifier: GPL-2.0-only
/* Names of the kernel's addresses, from the kernel or /proc/kallsyms: only this host can tell them.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel_lookup.h"
#include "output.h"
#include "proc.h"
#include "session.h"
#include "stream.h"
#include "totals.h"
#include "watchdog.h"

enum { ADDRESSES_MOST = 16384, TABLE_SIZE = 4 * ADDRESSES_MOST, NAME_MOST = 96 };

static u64 table[TABLE_SIZE]; /* open addressing; 0: empty */
static u64 addresses[ADDRESSES_MOST];
static u32 addresses_count;

void kernel_address_add(u64 address)
{
	u32 place = (u32)((address * 0x9e3779b97f4a7c15ULL) >> 32) % TABLE_SIZE;

	while (table[place] && table[place] != address)
		place = (place + 1) % TABLE_SIZE;
	if (table[place] || addresses_count == ADDRESSES_MOST)
		return;
	table[place] = address;
	addresses[addresses_count++] = address;
}

static int compare(const void *left, const void *right)
{
	u64 a = *(const u64 *)left, b = *(const u64 *)right;

	return a < b ? -1 : a > b;
}

/* The first address that is not below `start`. */
static u32 first_from(u64 start)
{
	u32 low = 0, high = addresses_count;

	while (low < high) {
		u32 middle = (low + high) / 2;
		if (addresses[middle] < start)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Keep each symbol at the first address behind it, if no later one is there. Of several at one
 * address the kernel itself shows the first.
 */
static void read_symbols(struct stream_kernel_name *names)
{
	static struct lines lines;
	u32 count = 0;

	if (!lines_open(&lines, "/proc/kallsyms"))
		return;
	for (char *line; (line = lines_next(&lines));) {
		char *end;
		u64 start = strtoull(line, &end, 16);
		if (!(count++ & 4095))
			watchdog_beat();
		/*
		 * "ffffffff81000000 T _text"; __pfx_ names the padding before a function, and $x
		 * or $d whether code or data follows, in modules of arm64.
		 */
		if (end - line != 16 || !start || !strchr("tTwW", end[1]) || end[3] == '$' ||
		    !strncmp(end + 3, "__pfx_", 6))
			continue;
		u32 place = first_from(start);
		if (place == addresses_count || names[place].address >= start)
			continue;
		names[place].address = start;
		size_t length = strcspn(end + 3, "\t");
		if (length >= NAME_MOST)
			length = NAME_MOST - 1;
		memcpy(names[place].name, end + 3, length);
		names[place].name[length] = 0;
	}
	lines_close(&lines);
	for (u32 i = 0; i < addresses_count; i++) {
		if (i && names[i].address < names[i - 1].address)
			names[i] = names[i - 1];
		names[i].offset_bytes = addresses[i] - names[i].address;
	}
}

static void look_up(struct stream_kernel_name *names)
{
	for (u32 i = 0; i < addresses_count; i++) {
		if (!(i & 255))
			watchdog_beat();
		kernel_lookup(addresses[i], &names[i]);
	}
}

bool kernel_names_put(u64 *last)
{
	static struct stream_kernel_name names[ADDRESSES_MOST];

	if (!addresses_count)
		return true;
	memset(names, 0, sizeof(names)); /* of the addresses until another target ended */
	qsort(addresses, addresses_count, sizeof(*addresses), compare);
	if (kernel_lookup_works())
		look_up(names);
	else
		read_symbols(names);
	for (u32 i = 0; i < addresses_count; i++) {
		if (!names[i].address || addresses[i] <= *last)
			continue;
		if (!output_has_room(sizeof(struct stream_kernel_name) + sessions_end_bytes()))
			return false;
		struct stream_kernel_name *frame = output_put(STREAM_KERNEL_NAME, sizeof(*frame));
		if (!frame)
			return false;
		*frame = names[i];
		frame->address = addresses[i];
		*last = addresses[i];
	}
	return true;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two CPUs that create one key of a map at once (probes/bpf/function_sums.bpf.h, compiled for this
 * machine): each time that the program has not found a key, another CPU adds it before the program
 * does. It prints what the two have counted together.
 *
 * On a real machine the two must meet within a fraction of a microsecond.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef int64_t s64;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;
#define bool _Bool

/* What function_sums.bpf.h needs of the kernel and of the other programs. */
#define TLSTAX_KTYPES_H
#define TLSTAX_SLOTS_BPF_H
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) value *name
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { EXISTS = -17, KEYS_MOST = 8, BYTES_MOST = 64 };

static struct entry {
	const void *map;
	u8 key[BYTES_MOST], value[BYTES_MOST];
} entries[KEYS_MOST];

static u32 entries_count;

static u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

static void *find(const void *map, const void *key, size_t key_bytes)
{
	for (u32 i = 0; i < entries_count; i++)
		if (entries[i].map == map && !memcmp(entries[i].key, key, key_bytes))
			return entries[i].value;
	return NULL;
}

/* Another CPU adds the key, and then the program stores its value. */
static int store(const void *map, const void *key, size_t key_bytes, const void *value,
		 size_t value_bytes, u64 flags)
{
	struct entry *entry = &entries[entries_count++];

	entry->map = map;
	memcpy(entry->key, key, key_bytes);
	*(u64 *)(void *)entry->value = 1; /* its first number is a count */
	if (flags == BPF_NOEXIST)
		return EXISTS;
	memcpy(entry->value, value, value_bytes);
	return 0;
}

#define bpf_map_lookup_elem(map, wanted) find(map, wanted, sizeof(*(wanted)))
#define bpf_map_update_elem(map, wanted, stored, flags) \
	store(map, wanted, sizeof(*(wanted)), stored, sizeof(*(stored)), flags)

#include "../../probes/bpf/function_sums.bpf.h"

static u64 count_of(const void *map)
{
	for (u32 i = 0; i < entries_count; i++)
		if (entries[i].map == map)
			return *(u64 *)(void *)entries[i].value;
	return 0;
}

int main(void)
{
	struct call call = {.function = 3, .phase = 1, .size_bytes = 100};

	count_call(3, 1, 100);
	add_time(&call, 5000);
	lose_many(FUNCTION_LOSS_HEALED, 1);
	printf("calls %llu\n", (unsigned long long)count_of(&function_sums));
	printf("times %llu\n", (unsigned long long)count_of(&function_times));
	printf("losses %llu\n", (unsigned long long)count_of(&function_losses));
	return 0;
}

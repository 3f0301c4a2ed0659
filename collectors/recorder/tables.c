// SPDX-License-Identifier: GPL-2.0-only
#include "tables.h"

#include <string.h>
#include <zlib.h>

#include "failure.h"

enum { BUCKET_BYTES = 1 << UNWIND_BUCKET_BITS };

/* DWARF_REGISTERS of probes/bpf/arch.h. */
#if defined(__aarch64__)
enum { REGISTERS = 32 };
#else
enum { REGISTERS = 16 };
#endif

static const char magic[8] = {'t', 'l', 's', 't', 'a', 'x', 'U', 'S'};

static int refuse(const char *why)
{
	return fail(EXIT_CODE_USAGE, "the unwind tables are refused: %s", why);
}

static bool is_sound_rule(const struct unwind_rule *rule)
{
	return rule->kind <= RULE_SCALED && rule->reg < REGISTERS && rule->saved <= SAVED_REGISTER;
}

/* Whether a word is a row whose rule is there. */
static bool is_sound_row(const struct tables *tables, u32 row)
{
	u32 kind = row >> 8 & 7;

	return kind <= ROW_END && (kind != ROW_RULE || row >> 11 < tables->rules_count);
}

/* Its words are behind those of the table before, which end at *end. */
static bool is_sound_table(const struct tables *tables, const struct table *table, u32 *end)
{
	u64 rows = (u64)table->index + table->buckets + 1;

	if (!table->buckets || table->index < *end || rows >= tables->words_count ||
	    table->base % BUCKET_BYTES || table->base >> 47 ||
	    table->build_id_bytes > BUILD_ID_MOST)
		return false;
	const u32 *firsts = tables->words + table->index;
	/* The row in front of a bucket's first one applies there, too: so there is one. */
	if (firsts[0] <= rows || firsts[table->buckets] > tables->words_count)
		return false;
	for (u32 i = 0; i < table->buckets; i++)
		if (firsts[i] > firsts[i + 1])
			return false;
	for (u32 i = (u32)rows; i < firsts[table->buckets]; i++)
		if (!is_sound_row(tables, tables->words[i]))
			return false;
	*end = firsts[table->buckets];
	return true;
}

int tables_parse(struct tables *tables, const u8 *bytes, size_t length)
{
	const struct tables_head *head = (const void *)bytes;
	const size_t checked = offsetof(struct tables_head, tables_count);
	u32 end = 0;

	if (length < sizeof(*head) || memcmp(head->magic, magic, sizeof(magic)) != 0)
		return refuse("it is no file of unwind tables");
	if (head->version != TABLES_VERSION)
		return refuse("it has another version: write it with the tlstax of the recorder");
	if (head->tables_count > TABLES_MOST || head->rules_count > TABLES_RULES_MOST ||
	    head->words_count > TABLES_WORDS_MOST ||
	    length != sizeof(*head) + head->tables_count * sizeof(struct table) +
			      head->rules_count * sizeof(struct unwind_rule) +
			      head->words_count * sizeof(u32))
		return refuse("its counts do not fit its size");
	if (crc32(0, bytes + checked, (u32)(length - checked)) != head->crc32)
		return refuse("its checksum is another");
	tables->tables_count = head->tables_count;
	tables->rules_count = head->rules_count;
	tables->words_count = head->words_count;
	tables->tables = (const void *)(head + 1);
	tables->rules = (const void *)(tables->tables + tables->tables_count);
	tables->words = (const void *)(tables->rules + tables->rules_count);
	for (u32 i = 0; i < tables->rules_count; i++)
		if (!is_sound_rule(&tables->rules[i]))
			return refuse("a rule is of a kind that does not exist");
	for (u32 i = 0; i < tables->tables_count; i++)
		if (!is_sound_table(tables, &tables->tables[i], &end))
			return refuse("a table leads to what is not there");
	return 0;
}

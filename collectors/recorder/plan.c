// SPDX-License-Identifier: GPL-2.0-only
#include "plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "failure.h"
#include "plan_reader.h"

enum { FORMAT_VERSION = 6, LINE_MOST = 1 << 20, PRICE_NS_MOST = 100000000 };

const char *const level_names[LEVELS] = {"sample", "signature", "handshake", "connection",
					 "flow",   "command",	"record"};
static const char *const roles[] = {"server", "client", "tunnel", "proxy"};
static const char *const accessors[ACCESSORS] = {
	"ssl_version", "ssl_rwstate",	 "ssl_shutdown", "ssl_state",  "ssl_hit",
	"ssl_session", "session_cipher", "cipher_id",	 "ssl_server",
};

/* What stands once in a plan; bits of `seen`. */
enum seen {
	SEEN_FORMAT = 1,
	SEEN_ARCHITECTURE = 2,
	SEEN_KERNEL = 4,
	SEEN_LEVEL = 8,
	SEEN_ROLE = 16,
	SEEN_PROGRAMS = 32,
	SEEN_SAMPLES = 64,
	SEEN_USER_STACKS = 128,
	SEEN_ALL = 255,
	SEEN_END = 256,
};

int level_by_name(const char *name, size_t length)
{
	struct word word = {name, length};

	for (int i = 0; i < LEVELS; i++)
		if (is_word(&word, level_names[i]))
			return i;
	return -1;
}

int plan_refuse(const struct plan_reader *reader, const char *why)
{
	return fail(EXIT_CODE_USAGE, "the plan is refused: line %u: %s", reader->line, why);
}

static bool once(struct plan_reader *reader, u32 bit)
{
	bool is_first = !(reader->seen & bit);

	reader->seen |= bit;
	return is_first;
}

bool plan_one_of(const struct word *word, const char *yes, const char *no, bool *value)
{
	*value = is_word(word, yes);
	return *value || is_word(word, no);
}

/* The lowest level at which a site is probed; "ledger": flow or one above it. */
static bool read_lowest(const struct word *word, struct plan_site *site)
{
	site->is_dense = is_word(word, "ledger");
	site->lowest = LEVEL_FLOW;
	for (int level = LEVEL_SIGNATURE; level <= LEVEL_CONNECTION; level++)
		if (is_word(word, level_names[level]))
			site->lowest = level;
	return site->is_dense || site->lowest != LEVEL_FLOW;
}

static int read_accessor(struct plan_reader *reader, struct words *words)
{
	struct word name, offset;
	u64 number;

	if (!next_word(words, &name) || !next_word(words, &offset) ||
	    !number_of(&offset, 1 << 16, &number))
		return plan_refuse(reader, "not `accessor NAME OFFSET`");
	for (int i = 0; i < ACCESSORS; i++) {
		if (!is_word(&name, accessors[i]))
			continue;
		if (reader->plan->accessors[i] >= 0)
			return plan_refuse(reader, "an accessor is given twice");
		reader->plan->accessors[i] = (s32)number;
		return 0;
	}
	return plan_refuse(reader, "an accessor that this recorder does not know");
}

static int read_file(struct plan_reader *reader, struct words *words)
{
	struct plan *plan = reader->plan;
	struct word word;
	u64 number;
	u8 bytes[32];

	if (plan->files_count == PLAN_FILES_MOST)
		return plan_refuse(reader, "too many files");
	struct plan_file *file = &plan->files[plan->files_count];
	if (!next_word(words, &word) || !number_of(&word, PLAN_FILES_MOST, &number) ||
	    number != plan->files_count)
		return plan_refuse(reader, "files are not numbered from 0");
	if (!next_value(words, "build-id", &word) ||
	    (!is_word(&word, "none") &&
	     (!bytes_of(&word, bytes, sizeof(bytes)) ||
	      !copy_word(&word, file->build_id, sizeof(file->build_id)))))
		return plan_refuse(reader, "not a build-id");
	if (!next_value(words, "path", &word) || !copy_word(&word, file->path, sizeof(file->path)))
		return plan_refuse(reader, "not a path");
	plan->files_count++;
	return 0;
}

int plan_read_place(struct plan_reader *reader, struct words *words, u32 *file, u64 *offset)
{
	struct word word;
	u64 number;

	if (!next_value(words, "file", &word) || !number_of(&word, PLAN_FILES_MOST, &number) ||
	    number >= reader->plan->files_count)
		return plan_refuse(reader, "a file that the plan does not list before");
	*file = (u32)number;
	reader->plan->files[number].is_used = true;
	if (!next_value(words, "offset", &word) || !number_of(&word, ~0ULL >> 1, offset))
		return plan_refuse(reader, "not an offset in a file");
	return 0;
}

u32 plan_read_code(struct words *words, u8 code[PLAN_CODE_MOST])
{
	struct word word;

	return next_value(words, "bytes", &word) ? bytes_of(&word, code, PLAN_CODE_MOST) : 0;
}

bool plan_is_described(const struct words *words)
{
	return words->at != words->end && *words->at == '{';
}

static int read_span(struct plan_reader *reader, struct words *words)
{
	struct plan *plan = reader->plan;
	struct word word;
	u64 number;

	if (plan->spans_count == PLAN_SPANS_MOST)
		return plan_refuse(reader, "too many spans");
	struct plan_span *span = &plan->spans[plan->spans_count];
	if (!next_word(words, &word) || !number_of(&word, PLAN_SPANS_MOST, &number) ||
	    number != plan->spans_count)
		return plan_refuse(reader, "spans are not numbered from 0");
	if (plan_read_place(reader, words, &span->file, &span->offset))
		return -1;
	if (!next_value(words, "length", &word) || !number_of(&word, 1 << 30, &span->bytes))
		return plan_refuse(reader, "not a length");
	plan->spans_count++;
	return 0;
}

static int read_site(struct plan_reader *reader, struct words *words, struct plan_site *sites,
		     u32 *sites_count)
{
	struct word word;
	u64 number;

	if (*sites_count == PLAN_SITES_MOST)
		return plan_refuse(reader, "more than 256 sites: plan with fewer definitions");
	struct plan_site *site = &sites[*sites_count];
	if (!next_word(words, &word) || !number_of(&word, PLAN_SITES_MOST, &number) ||
	    number != *sites_count)
		return plan_refuse(reader, "sites are not numbered from 0");
	if (plan_read_place(reader, words, &site->file, &site->offset))
		return -1;
	if (!next_value(words, "event", &word) ||
	    !plan_one_of(&word, "exit", "enter", &site->is_exit) ||
	    !next_value(words, "kind", &word) ||
	    !plan_one_of(&word, "uretprobe", "uprobe", &site->is_return) ||
	    !next_value(words, "from", &word) || !read_lowest(&word, site) ||
	    !next_value(words, "unless", &word) ||
	    !plan_one_of(&word, "socket-tracepoints", "never", &site->is_covered))
		return plan_refuse(reader, "not the event, kind and use of a site");
	if (!next_value(words, "cookie", &word) || !number_of(&word, ~0ULL, &site->cookie) ||
	    (site->cookie >> 16 & 0xff) != number)
		return plan_refuse(reader, "the cookie is not this site's");
	if (!next_value(words, "price-ns", &word) || !number_of(&word, PRICE_NS_MOST, &number))
		return plan_refuse(reader, "no price of a hit");
	site->price_ns = (double)number;
	site->code_bytes = plan_read_code(words, site->code);
	if (!site->code_bytes)
		return plan_refuse(reader, "no bytes of the code");
	if (!plan_is_described(words))
		return plan_refuse(reader, "no description of the site");
	++*sites_count;
	return 0;
}

/* A line that stands once: `name value`. */
static int read_setting(struct plan_reader *reader, const struct word *name, struct words *words)
{
	struct plan *plan = reader->plan;
	struct word word;
	bool is_known = false;

	if (!next_word(words, &word) || words->at != words->end)
		return plan_refuse(reader, "a line that this recorder does not know");
	if (is_word(name, "architecture")) {
		is_known = once(reader, SEEN_ARCHITECTURE) &&
			   copy_word(&word, plan->architecture, sizeof(plan->architecture));
	} else if (is_word(name, "kernel")) {
		is_known = once(reader, SEEN_KERNEL) &&
			   copy_word(&word, plan->kernel, sizeof(plan->kernel));
	} else if (is_word(name, "level")) {
		int level = level_by_name(word.at, word.length);
		is_known = once(reader, SEEN_LEVEL) && level >= 0;
		plan->level = level < 0 ? LEVEL_SAMPLE : (enum level)level;
	} else if (is_word(name, "role")) {
		for (u32 i = 0; i < COUNT(roles); i++)
			if (is_word(&word, roles[i])) {
				plan->role = i < 2 ? i : 2;
				is_known = true;
			}
		is_known = once(reader, SEEN_ROLE) && is_known;
	} else if (is_word(name, "programs")) {
		is_known = once(reader, SEEN_PROGRAMS) &&
			   plan_one_of(&word, "ledger_guarded", "ledger", &plan->is_guarded);
	} else if (is_word(name, "samples")) {
		is_known = once(reader, SEEN_SAMPLES) &&
			   plan_one_of(&word, "yes", "no", &plan->has_samples);
	} else if (is_word(name, "user-stacks")) {
		is_known = once(reader, SEEN_USER_STACKS) &&
			   plan_one_of(&word, "yes", "no", &plan->has_user_stacks);
	}
	return is_known ? 0 : plan_refuse(reader, "unknown, given twice, or not one of its values");
}

static int read_line(struct plan_reader *reader, struct words words)
{
	struct plan *plan = reader->plan;
	struct word name, word;
	u64 number;

	if (!next_word(&words, &name))
		return plan_refuse(reader, "an empty word");
	if (!(reader->seen & SEEN_FORMAT)) {
		if (!is_word(&name, "tlstax-plan") || !next_word(&words, &word))
			return fail(EXIT_CODE_USAGE, "the plan is refused: it is not a plan file");
		if (!number_of(&word, ~0ULL, &number) || number != FORMAT_VERSION)
			return fail(EXIT_CODE_USAGE,
				    "the plan is refused: its format is version %.*s and this "
				    "recorder reads version %d: write it with the tlstax of the "
				    "recorder",
				    (int)(word.length < 20 ? word.length : 20), word.at,
				    FORMAT_VERSION);
		reader->seen |= SEEN_FORMAT;
		return 0;
	}
	if (is_word(&name, "about"))
		return 0; /* for those who make captures and reports */
	if (is_word(&name, "accessor"))
		return read_accessor(reader, &words);
	if (is_word(&name, "file"))
		return read_file(reader, &words);
	if (is_word(&name, "span"))
		return read_span(reader, &words);
	if (is_word(&name, "site"))
		return read_site(reader, &words, plan->sites, &plan->sites_count);
	if (is_word(&name, "stretch-site"))
		return read_site(reader, &words, plan->stretch_sites, &plan->stretch_sites_count);
	if (is_word(&name, "function"))
		return plan_read_function(reader, &words);
	if (is_word(&name, "point"))
		return plan_read_point(reader, &words);
	if (!is_word(&name, "end"))
		return read_setting(reader, &name, &words);
	if (!next_word(&words, &word) || !number_of(&word, ~0ULL, &number) ||
	    number != reader->line)
		return plan_refuse(reader, "lines are missing before the end");
	reader->seen |= SEEN_END;
	return 0;
}

int plan_parse(struct plan *plan, const char *text, size_t length)
{
	struct plan_reader reader = {.plan = plan};
	const char *end = text + length;

	memset(plan, 0, sizeof(*plan));
	memset(plan->accessors, 0xff, sizeof(plan->accessors));
	for (const char *at = text; at < end;) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		reader.line++;
		if (!stop || stop - at > LINE_MOST)
			return plan_refuse(&reader, "the line has no end, or is too long");
		if (reader.seen & SEEN_END)
			return plan_refuse(&reader, "text after the end");
		if (stop > at && *at != '#' && read_line(&reader, (struct words){at, stop}))
			return -1;
		at = stop + 1;
	}
	if (!(reader.seen & SEEN_END))
		return plan_refuse(&reader, "the plan was cut: it has no end");
	if ((reader.seen & SEEN_ALL) != SEEN_ALL)
		return plan_refuse(&reader,
				   "architecture, kernel, level, role, programs, samples and "
				   "user-stacks are not all given");
	return 0;
}

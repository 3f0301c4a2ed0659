// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder's loop over its targets, its endings and its queue, without a kernel: what reads
 * maps of the kernel is replaced. tests/unit/recorder/test_endings.py drives it.
 */
#define main recorder_main
#include "main.c"
#undef main

#include "kernel_lookup.h"
#include "links.h"
#include "proc.h"
#include "totals.h"

enum { RECORD_BYTES = 4096, TARGETS = 3, SPIN_NS = 10000000, FAKE_FD = 1 << 24 };

/* What a test says of each target, and what it is told. */
struct fake {
	u32 steps;    /* until its recording ends, 0: it does not */
	u32 refusals; /* of its last window, before it is looked whether there is room */
	u32 records;  /* of its last window */
	u32 tries;    /* how often that was tried */
	u64 asked_ns; /* schedule_end_window() */
} fakes[TARGETS];
u64 cut_asked_ns = 1; /* 1: nobody asked */
int links_each;	      /* of a target, to be closed */
static const char *maps_path, *names_path;

static struct fake *fake(void)
{
	return &fakes[session->number];
}

bool __real_lines_open(struct lines *lines, const char *path);
bool __wrap_lines_open(struct lines *lines, const char *path)
{
	return __real_lines_open(lines, strstr(path, "kallsyms") ? names_path : maps_path);
}

int __real_close(int fd);
int __wrap_close(int fd)
{
	u64 until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + SPIN_NS;

	if (fd < FAKE_FD)
		return __real_close(fd);
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until_ns)
		;
	return 0;
}

bool schedule_cut_last(void)
{
	fake()->tries++;
	if (fake()->refusals || !output_has_room((size_t)fake()->records * (RECORD_BYTES + 64))) {
		fake()->refusals -= fake()->refusals > 0;
		session->windows.merged_count++;
		return false;
	}
	for (u32 i = 0; i < fake()->records; i++)
		output_put(STREAM_SAMPLE, RECORD_BYTES);
	output_commit();
	return true;
}

int schedule_step(void)
{
	if (!fake()->steps || --fake()->steps)
		return 0;
	return fail(EXIT_CODE_TARGET, "process %d ended", session->target.pid);
}

u64 schedule_wake_ns(void)
{
	return monotonic_ns() + NS_PER_MS;
}

void schedule_end_window(u64 ns)
{
	fake()->asked_ns = ns;
}

bool control_cut(u64 *ns)
{
	bool is_asked = cut_asked_ns != 1;

	*ns = cut_asked_ns;
	cut_asked_ns = 1;
	return is_asked;
}

void engine_detach(struct engine *engine)
{
	(void)engine;
	links_close();
}

/* clang-format off */
int begin_all(void) { return 0; }
void opening_files(void) {}
int opening_sessions(int count, char **arguments) { (void)count, (void)arguments; return 0; }
int opening_output(const struct options *options) { (void)options; return -1; }
int control_line(void) { return -1; }
void control_open(void) {}
bool control_take(void) { return true; }
int serve_life_line(void) { return -1; }
bool serve_is_over(void) { return false; }
bool serve_is_together(void) { return false; }
int watchdog_start(int output_fd, bool is_serving) { (void)output_fd, (void)is_serving; return 0; }
void watchdog_beat(void) {}
bool watchdog_missed(void) { return false; }
bool watchdog_starved(void) { return false; }
void watchdog_resume(void) {}
int schedule_lapse(void) { return 0; }
int schedule_resume(void) { return 0; }
void watchdog_arm(bool on) { (void)on; }
int watchdog_check(void) { return 0; }
void watchdog_stop(void) {}
u64 watchdog_cpu_ns(void) { return 0; }
void privileges_give_up(void) {}
void statistics_turn(bool on) { (void)on; }
void budget_set_floor(double cpus) { (void)cpus; }
const char *target_program(const struct target *target) { (void)target; return ""; }
bool kernel_lookup_works(void) { return false; }
bool kernel_lookup(u64 address, struct stream_kernel_name *name) { (void)address, (void)name; return false; }
bool walks_has_table(const struct stream_mapping *mapping) { (void)mapping; return false; }
/* clang-format on */

void engine_read_lifecycle(const struct engine *engine, struct lifecycle *life)
{
	(void)engine;
	*life = (struct lifecycle){0};
}

u32 build_id_of(int fd, u64 start, u8 *id)
{
	(void)fd, (void)start, (void)id;
	return 0;
}

bool code_address_of(int fd, u64 start, u64 offset, u64 *address)
{
	(void)fd, (void)start, (void)offset, (void)address;
	return false;
}

/* Targets that are being recorded, with a stream to `fd`. */
int begin(int fd, u32 targets, u64 queue_bytes, const char *maps, const char *names)
{
	maps_path = maps;
	names_path = names;
	signals_fd = -1;
	for (u32 i = 0; i < targets; i++) {
		if (session_add())
			return -1;
		session->options.queue_bytes = queue_bytes;
		session->target.pid = 1 << 29; /* there is none */
		session->target.pidfd = -1;
		session->windows.merged_count = 3;
		session->progress = PROGRESS_RECORDING;
		for (int k = 0; k < links_each; k++)
			if (links_add(LINKS_DENSE, FAKE_FD + (int)i * links_each + k))
				return -1;
	}
	for (u64 address = 1; address <= 2000; address++)
		kernel_address_add(0xffffffff81000000 + 16 * address);
	return links_prepare() || output_open(fd, queue_bytes);
}

void go_on_for(u64 ns, int fd)
{
	record(ns, fd);
}

void end(int early)
{
	if (early)
		fail(EXIT_CODE_FAILED, "it failed");
	finish();
	judge_all();
}

int is_over(u32 target)
{
	return session_of(target)->progress == PROGRESS_OVER;
}

u64 cpu_of(u32 target)
{
	session_turn(target);
	return session_cpu_ns();
}

int exit_code(void)
{
	return failure.code;
}

const char *why(void)
{
	return failure.text;
}

/* Wait for the reader. */
u64 left_unread(void)
{
	return output_finish(NS_PER_S);
}

// SPDX-License-Identifier: GPL-2.0-only
#include "links.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "privileges.h"
#include "session.h"
#include "watchdog.h"

/* The kernel waits for each process that has mapped the probed file, without an end. A recorder for
 * which it waits so long beats no more: what is still attached is idle, and the watchdog kills it.
 */
#define STUCK_NS (20 * NS_PER_S)

enum { LINKS_MOST = 2048 * STREAM_TARGETS_MOST, CLOSERS = 8 };

static struct entry {
	int fd; /* -1: closed */
	enum link_group group;
	u32 target;
} entries[LINKS_MOST];
static u32 entries_count;

/* The groups of a target that are being closed, from entry `next` on; `busy` closers are at work.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	u32 groups; /* a bit for each */
	u32 target, next, busy, closed_count;
	bool is_closing;
} state = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.work = PTHREAD_COND_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

static bool is_closing(const struct entry *entry)
{
	return state.groups >> entry->group & 1 && entry->target == state.target;
}

/* The next entry of the groups, NULL: none is left. Under the lock. */
static struct entry *next_entry(void)
{
	while (state.next < entries_count) {
		struct entry *entry = &entries[state.next++];
		if (is_closing(entry))
			return entry;
	}
	return NULL;
}

static void *close_links(void *unused)
{
	(void)unused;
	privileges_give_up();
	pthread_mutex_lock(&state.lock);
	for (;;) {
		struct entry *entry = state.is_closing ? next_entry() : NULL;
		if (!entry) {
			pthread_cond_wait(&state.work, &state.lock);
			continue;
		}
		int fd = entry->fd;
		entry->fd = -1;
		state.busy++;
		pthread_mutex_unlock(&state.lock);
		u64 before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		close(fd);
		u64 spent_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
		pthread_mutex_lock(&state.lock);
		session_charge(state.target, spent_ns);
		state.busy--;
		state.closed_count++;
		pthread_cond_signal(&state.done);
	}
	return NULL;
}

int links_prepare(void)
{
	pthread_t thread;

	for (int i = 0; i < CLOSERS; i++) {
		int error = pthread_create(&thread, NULL, close_links, NULL);
		if (error)
			return fail(EXIT_CODE_HOST, "cannot start a thread: %s", strerror(error));
		pthread_detach(thread);
	}
	return 0;
}

int links_add(enum link_group group, int fd)
{
	if (fd < 0)
		return fd;
	if (entries_count == LINKS_MOST) {
		close(fd);
		return -ENOSPC;
	}
	entries[entries_count++] = (struct entry){fd, group, session->number};
	return 0;
}

static bool is_group_left(void)
{
	for (u32 i = state.next; i < entries_count; i++)
		if (is_closing(&entries[i]))
			return true;
	return state.busy > 0;
}

/* Forget the entries that were closed. */
static void compact(void)
{
	u32 kept = 0;

	for (u32 i = 0; i < entries_count; i++)
		if (entries[i].fd >= 0)
			entries[kept++] = entries[i];
	entries_count = kept;
}

void links_drop(int fd)
{
	pthread_mutex_lock(&state.lock);
	for (u32 i = 0; i < entries_count; i++)
		if (entries[i].fd == fd)
			entries[i].fd = -1;
	compact();
	pthread_mutex_unlock(&state.lock);
	close(fd);
}

void links_close_group(enum link_group group)
{
	bool has_traps = group == LINKS_DENSE || group == LINKS_BESIDE_DENSE;

	links_close_groups(1U << group |
			   (has_traps ? 1U << (group + LINKS_TRAPS - LINKS_DENSE) : 0));
}

/* CPU time of the threads but this one, which waits. */
static u64 others_cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void links_close_groups(u32 groups)
{
	u64 progress_ns = monotonic_ns(), worked_ns = others_cpu_ns();
	u32 closed_count = state.closed_count;
	struct timespec until;

	pthread_mutex_lock(&state.lock);
	state.groups = groups;
	state.target = session->number;
	state.next = 0;
	state.is_closing = true;
	pthread_cond_broadcast(&state.work);
	while (is_group_left()) {
		/* One link may hold all probes of a file that a thousand processes have mapped. */
		if (closed_count != state.closed_count || others_cpu_ns() - worked_ns > NS_PER_MS) {
			progress_ns = monotonic_ns();
			worked_ns = others_cpu_ns();
			closed_count = state.closed_count;
		}
		if (monotonic_ns() - progress_ns < STUCK_NS)
			watchdog_beat();
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 100 * (long)NS_PER_MS;
		if (until.tv_nsec >= (long)NS_PER_S)
			until.tv_sec++, until.tv_nsec -= (long)NS_PER_S;
		pthread_cond_clockwait(&state.done, &state.lock, CLOCK_MONOTONIC, &until);
	}
	state.is_closing = false;
	compact();
	pthread_mutex_unlock(&state.lock);
}

void links_close(void)
{
	for (int group = 0; group < LINK_GROUPS; group++)
		links_close_group((enum link_group)group);
}

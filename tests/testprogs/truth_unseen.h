/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A connection that ends while its boundaries are not looked at, and what its thread does then.
 *
 * The thread goes through stages, each of which ends with a byte on standard input:
 *   1  it serves a connection, in a phase that its way names; "born": there is no thread yet
 *   2  it has left that connection, and does other work, which no boundary announces
 *   3  it takes a connection again
 */
#ifndef TLSTAX_TRUTH_UNSEEN_H
#define TLSTAX_TRUTH_UNSEEN_H

#include "truth_server.h"

#include <sys/time.h>

enum { SLICE_US = 1000, LAST_STAGE = 3, CHURN_MS = 2 };

struct unseen {
	const char *way;
	int ends[2]; /* of a socket on which nothing comes */
	pthread_mutex_t guard;
	pthread_cond_t changed;
	int stage, reached; /* under the guard */
};

PHASE_CALL void tt_begin_unseen(void)
{
	__asm__ volatile("");
}

PHASE_CALL void tt_end_unseen(void)
{
	__asm__ volatile("");
	WAY_OUT();
}

/* Say that a stage is reached; whether it is over. */
static bool is_over(struct unseen *unseen, int stage)
{
	pthread_mutex_lock(&unseen->guard);
	unseen->reached = stage;
	pthread_cond_broadcast(&unseen->changed);
	bool over = unseen->stage > stage;
	pthread_mutex_unlock(&unseen->guard);
	return over;
}

/* Work and wait for the network until a stage is over. */
static void stay(struct unseen *unseen, int stage)
{
	char byte;
	while (!is_over(unseen, stage)) {
		spin(COMMAND, SLICE_US * 1000);
		if (recv(unseen->ends[0], &byte, 1, 0) > 0)
			die("recv");
	}
}

/* The same, but wait as a parked thread does: in the first stage it does not wake up. */
static void stay_parked(struct unseen *unseen, int stage)
{
	is_over(unseen, stage);
	pthread_mutex_lock(&unseen->guard);
	while (unseen->stage <= stage) {
		struct timespec until;
		if (stage == 1) {
			pthread_cond_wait(&unseen->changed, &unseen->guard);
			continue;
		}
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += SLICE_US * 1000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&unseen->changed, &unseen->guard, &until);
	}
	pthread_mutex_unlock(&unseen->guard);
}

/* The server's own handshake function, without a call of the library. */
PHASE_CALL void tt_bound_unseen(struct unseen *unseen)
{
	stay(unseen, 1);
	WAY_OUT();
}

static void *serve_unseen(void *argument)
{
	struct unseen *unseen = argument;
	bool parks = !strcmp(unseen->way, "park");

	open_books("tt-unseen");
	if (strcmp(unseen->way, "born") != 0)
		tt_begin_unseen();
	if (!strcmp(unseen->way, "connect"))
		stay(unseen, 1);
	else if (!strcmp(unseen->way, "bound"))
		tt_bound_unseen(unseen);
	if (parks) {
		tt_end_unseen();
		stay_parked(unseen, 1);
		stay_parked(unseen, 2);
	} else {
		stay(unseen, 2);
	}
	tt_begin_unseen();
	stay(unseen, LAST_STAGE);
	close(books.schedstat_fd);
	return NULL;
}

/* Connections that come all the time, so that a budget leaves their boundaries out. */
static void *take_connections(void *argument)
{
	(void)argument;
	pthread_setname_np(pthread_self(), "tt-churn");
	for (;;) {
		tt_begin_unseen();
		doze(CHURN_MS * MILLISECOND);
	}
	return NULL;
}

/* Let the thread come to a stage, and say so. */
static void go_to(struct unseen *unseen, int stage)
{
	pthread_mutex_lock(&unseen->guard);
	unseen->stage = stage;
	pthread_cond_broadcast(&unseen->changed);
	while (unseen->reached < stage)
		pthread_cond_wait(&unseen->changed, &unseen->guard);
	pthread_mutex_unlock(&unseen->guard);
	say("{\"kind\":\"stage\",\"stage\":%d}", stage);
	flush();
}

static void await_byte(void)
{
	char byte;
	if (read(STDIN_FILENO, &byte, 1) != 1)
		exit(1);
}

static void run_unseen(const char *way, bool churns)
{
	static struct unseen unseen = {.guard = PTHREAD_MUTEX_INITIALIZER,
				       .changed = PTHREAD_COND_INITIALIZER};
	struct timeval slice = {.tv_usec = SLICE_US};
	pthread_t thread;
	bool is_born = !strcmp(way, "born");

	unseen.way = way;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, unseen.ends) ||
	    setsockopt(unseen.ends[0], SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)))
		die("socketpair");
	await_go();
	if (churns)
		start(take_connections, NULL);
	unseen.stage = is_born ? 2 : 1;
	if (is_born) { /* there is none in the first stage */
		say("{\"kind\":\"stage\",\"stage\":1}");
		flush();
		await_byte();
	}
	thread = start(serve_unseen, &unseen);
	for (int stage = unseen.stage; stage <= LAST_STAGE; stage++) {
		go_to(&unseen, stage);
		await_byte();
	}
	pthread_mutex_lock(&unseen.guard);
	unseen.stage = LAST_STAGE + 1;
	pthread_cond_broadcast(&unseen.changed);
	pthread_mutex_unlock(&unseen.guard);
	pthread_join(thread, NULL);
}

#endif

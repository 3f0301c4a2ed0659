/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads that wake each other, work and wait, and start short threads: a load to close over. */
#ifndef TLSTAX_TRUTH_LOAD_H
#define TLSTAX_TRUTH_LOAD_H

#include "truth_exits.h"

#include <sys/un.h>

enum { ROUNDS_PER_THREAD = 20 };

struct load {
	uint64_t until_ns, spin_ns, pause_ns;
};

struct worker {
	const struct load *load;
	int fd;
	bool begins;
};

static void work(uint64_t spin_ns)
{
	uint64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + spin_ns;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
		for (volatile int i = 0; i < 200; i++)
			;
}

PHASE_CALL void tt_load_write(struct worker *worker)
{
	char byte = '!';
	work(worker->load->spin_ns / 4);
	if (send(worker->fd, &byte, 1, MSG_NOSIGNAL) != 1 && errno != EPIPE)
		die("send");
}

static void *work_shortly(void *argument)
{
	work(((const struct load *)argument)->spin_ns);
	return NULL;
}

/* A phase within a command, of every level. */
PHASE_CALL void tt_load_within(struct worker *worker, int round)
{
	if (round % ROUNDS_PER_THREAD == 0)
		pthread_join(start(work_shortly, (void *)worker->load), NULL);
	WAY_OUT();
}

PHASE_CALL void tt_dispatch_load(struct worker *worker, int round)
{
	work(worker->load->spin_ns);
	tt_load_within(worker, round);
	tt_load_write(worker);
	__asm__ volatile("");
}

PHASE_CALL bool tt_await_load(struct worker *worker, int round)
{
	char byte;
	if (worker->load->pause_ns)
		doze(worker->load->pause_ns);
	if (round && recv(worker->fd, &byte, 1, 0) != 1)
		return false;
	tt_dispatch_load(worker, round);
	return true;
}

static void *serve_load(void *argument)
{
	struct worker *worker = argument;
	tt_ready();
	for (int round = !worker->begins; clock_ns(CLOCK_MONOTONIC) < worker->load->until_ns;
	     round++)
		if (!tt_await_load(worker, round))
			break;
	shutdown(worker->fd, SHUT_RDWR);
	return NULL;
}

/* A connection over a Unix socket: the first end is accepted, as that of a client. */
static void connect_locally(int *ends)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(sa_family_t);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ends[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Without a name the kernel chooses one. */
	if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1))
		die("listen");
	size = sizeof(address);
	if (getsockname(listener, (struct sockaddr *)&address, &size) ||
	    connect(ends[1], (struct sockaddr *)&address, size))
		die("connect");
	ends[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (ends[0] < 0)
		die("accept");
	close(listener);
}

/* Pairs of threads that send each other a byte in turn. */
static void run_load(struct load *load, int pairs, uint64_t length_ns)
{
	pthread_t *threads = calloc((size_t)pairs * 2, sizeof(*threads));
	struct worker *workers = calloc((size_t)pairs * 2, sizeof(*workers));
	load->until_ns = clock_ns(CLOCK_MONOTONIC) + length_ns;
	for (int i = 0; i < pairs * 2; i += 2) {
		int ends[2];
		connect_locally(ends);
		for (int side = 0; side < 2; side++) {
			workers[i + side] = (struct worker){load, ends[side], side == 0};
			threads[i + side] = start(serve_load, &workers[i + side]);
		}
	}
	for (int i = 0; i < pairs * 2; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	free(workers);
}

#endif

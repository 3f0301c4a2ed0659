/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other sides that the truth program waits for.
 *
 * The socket's peer is another process, so that its own time is no part of the measured one. It
 * does what it is asked, over a pipe, so that only answers and results cross the socket: sleep,
 * then answer with a message, or sleep, then read so many bytes. The helper is a thread: it holds a
 * mutex, or signals a condition, for a known time.
 */
#ifndef TLSTAX_TRUTH_PEER_H
#define TLSTAX_TRUTH_PEER_H

#include "truth.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct peer {
	int fd;	    /* socket */
	int asking; /* pipe */
};

/* A message of the client's: a head of four bytes, as a packet of MySQL's has, and two more. */
enum { HEAD_BYTES = 4, BODY_BYTES = 2 };
static const char message[HEAD_BYTES + BODY_BYTES] = {BODY_BYTES, 0, 0, 0, '!', '!'};

struct request {
	uint64_t delay_ns;
	uint64_t drain_bytes; /* 0: answer with a message instead */
	uint64_t late_ns;     /* the end of the message comes so much after its beginning */
	uint64_t late_bytes;
};

static inline int listen_on_loopback(uint16_t *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, 128) || getsockname(listener, (struct sockaddr *)&address, &size))
		die("listen");
	*port = ntohs(address.sin_port);
	return listener;
}

/*
 * Small buffers: a megabyte must wait for its reader. (More would cost the sender time in soft
 * interrupts, which its CPU clock does not count and its ledger does.)
 */
static inline void keep_buffers_small(int fd)
{
	int bytes = 32768;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)))
		die("setsockopt");
}

static inline int connect_to(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr = {htonl(INADDR_LOOPBACK)},
				      .sin_port = htons(port)};
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	keep_buffers_small(fd);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static inline int accept_one(int listener)
{
	int on = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		die("accept");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static inline bool send_message(int fd, const struct request *request)
{
	size_t left_bytes = request->late_bytes, first_bytes = sizeof(message) - left_bytes;

	if (send(fd, message, first_bytes, MSG_NOSIGNAL) != (ssize_t)first_bytes)
		return false;
	doze(request->late_ns);
	return !left_bytes ||
	       send(fd, message + first_bytes, left_bytes, MSG_NOSIGNAL) == (ssize_t)left_bytes;
}

static inline void serve_requests(int fd, int asked)
{
	static char buffer[65536];
	struct request request;
	while (read(asked, &request, sizeof(request)) == sizeof(request)) {
		doze(request.delay_ns);
		for (uint64_t left = request.drain_bytes; left;) {
			ssize_t got =
				recv(fd, buffer, left < sizeof(buffer) ? left : sizeof(buffer), 0);
			if (got <= 0)
				return;
			left -= (uint64_t)got;
		}
		if (!request.drain_bytes && !send_message(fd, &request))
			return;
	}
}

enum side { CLIENT, REMOTE_SERVER };

/*
 * A connected peer in a process of its own. It ends when the pipe is closed. A client is accepted
 * by this process, which goes on listening as a server does; to a remote server it connects.
 */
static inline struct peer start_peer(enum side side)
{
	uint16_t port;
	int ends[2];
	struct peer peer;
	if (pipe2(ends, O_CLOEXEC))
		die("pipe");
	int listener = listen_on_loopback(&port);
	keep_buffers_small(listener); /* inherited by what it accepts */
	pid_t process = fork();
	if (process < 0)
		die("fork");
	if (process == 0) {
		int fd = side == CLIENT ? connect_to(port) : accept_one(listener);
		close(listener);
		close(ends[1]);
		serve_requests(fd, ends[0]);
		_exit(0);
	}
	peer.fd = side == CLIENT ? accept_one(listener) : connect_to(port);
	peer.asking = ends[1];
	if (side == REMOTE_SERVER)
		close(listener);
	close(ends[0]);
	return peer;
}

static inline void ask_for(const struct peer *peer, const struct request *request)
{
	if (write(peer->asking, request, sizeof(*request)) != sizeof(*request))
		die("ask");
}

static inline void ask(const struct peer *peer, uint64_t delay, uint64_t drain_bytes)
{
	struct request request = {delay, drain_bytes, 0, 0};
	ask_for(peer, &request);
}

struct helper {
	pthread_mutex_t held;  /* contended */
	pthread_mutex_t guard; /* of the condition */
	pthread_cond_t changed;
	sem_t asked, holding;
	uint64_t hold_ns;
	bool signal, signalled, leave;
};

/* Holds `held`, or signals `changed`, for hold_ns after it was asked. */
static inline void *help(void *argument)
{
	struct helper *helper = argument;
	pthread_setname_np(pthread_self(), "tt-helper");
	for (;;) {
		while (sem_wait(&helper->asked))
			;
		if (helper->leave)
			return NULL;
		if (helper->signal) {
			doze(helper->hold_ns);
			pthread_mutex_lock(&helper->guard);
			helper->signalled = true;
			pthread_cond_signal(&helper->changed);
			pthread_mutex_unlock(&helper->guard);
		} else {
			pthread_mutex_lock(&helper->held);
			sem_post(&helper->holding);
			doze(helper->hold_ns);
			pthread_mutex_unlock(&helper->held);
		}
	}
}

static inline void open_helper(struct helper *helper)
{
	memset(helper, 0, sizeof(*helper));
	if (pthread_mutex_init(&helper->held, NULL) || pthread_mutex_init(&helper->guard, NULL) ||
	    pthread_cond_init(&helper->changed, NULL) || sem_init(&helper->asked, 0, 0) ||
	    sem_init(&helper->holding, 0, 0))
		die("helper");
}

/* Wait on a condition that is signalled after `wait_ns`; the caller brackets it. */
static inline void wait_for_condition(struct helper *helper, uint64_t wait_ns)
{
	helper->signal = true;
	helper->signalled = false;
	helper->hold_ns = wait_ns;
	sem_post(&helper->asked);
	pthread_mutex_lock(&helper->guard);
	while (!helper->signalled)
		pthread_cond_wait(&helper->changed, &helper->guard);
	pthread_mutex_unlock(&helper->guard);
}

/* Have the helper hold the mutex for `wait_ns`; returns when it does. */
static inline void have_mutex_held(struct helper *helper, uint64_t wait_ns)
{
	helper->signal = false;
	helper->hold_ns = wait_ns;
	sem_post(&helper->asked);
	while (sem_wait(&helper->holding))
		;
}

#endif

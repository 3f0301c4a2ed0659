/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions with the shape of a server's, and a connection that waits in every way. */
#ifndef TLSTAX_TRUTH_SERVER_H
#define TLSTAX_TRUTH_SERVER_H

#include "truth_peer.h"

#include <setjmp.h>

enum { BLOCK_BYTES = 65536 };

struct server {
	struct helper helper;
	const char *file;
	struct peer peer, remote;
	uint64_t unit_ns;
	jmp_buf out;
};

enum command {
	SPIN,
	SLEEP,
	CONDITION,
	MUTEX,
	LOCK_WAIT,
	RECEIVE,
	READ,
	POLL,
	PIPE,
	DISK_WRITE,
	SEND,
	COMMANDS
};

/* ---- functions with the shape of a server's ---- */

PHASE_CALL void tt_lock_wait(struct server *server)
{
	wait_for_condition(&server->helper, server->unit_ns);
}

/* Sends more than the socket holds to a peer that reads late. */
PHASE_CALL void tt_net_real_write(struct server *server, const char *block, uint64_t bytes)
{
	books.count[RECORD_WRITE]++;
	spin(RECORD_WRITE, server->unit_ns / 2);
	begin(RECORD_WRITE);
	for (uint64_t left = bytes; left;) {
		ssize_t sent = send(server->peer.fd, block, left < BLOCK_BYTES ? left : BLOCK_BYTES,
				    MSG_NOSIGNAL);
		if (sent <= 0)
			die("send");
		left -= (uint64_t)sent;
	}
	end(RECORD_WRITE, NETWORK);
	WAY_OUT();
}

static const char block[BLOCK_BYTES];

/* The short result that every command ends with. */
static void answer(struct server *server)
{
	ask(&server->peer, 0, 1);
	end(COMMAND, ON_CPU);
	tt_net_real_write(server, block, 1);
}

/* A message, its head first. */
static void receive_from(int fd)
{
	char bytes[HEAD_BYTES];
	if (recv(fd, bytes, HEAD_BYTES, 0) != HEAD_BYTES ||
	    recv(fd, bytes, BODY_BYTES, 0) != BODY_BYTES)
		die("recv");
}

static void receive(struct server *server)
{
	receive_from(server->peer.fd);
}

static void poll_and_receive(struct server *server)
{
	struct pollfd ready = {.fd = server->peer.fd, .events = POLLIN};
	if (poll(&ready, 1, -1) != 1)
		die("poll");
	receive(server);
}

/* The command has waited for its client, and nothing said that it would. */
static void end_untold(void)
{
	end_wait(COMMAND, UNTOLD, NETWORK);
	books.count[UNTOLD]++;
}

static void *write_late(void *argument)
{
	int *ends = argument;
	doze(10 * MILLISECOND);
	if (write(ends[1], "!", 1) != 1)
		die("pipe");
	return NULL;
}

static void read_pipe(void)
{
	int ends[2];
	char byte;
	if (pipe(ends))
		die("pipe");
	begin(COMMAND);
	pthread_t writer = start(write_late, ends);
	if (read(ends[0], &byte, 1) != 1)
		die("pipe");
	end(COMMAND, OTHER);
	pthread_join(writer, NULL);
	end(COMMAND, FUTEX);
	close(ends[0]);
	close(ends[1]);
}

/* Writes past the page cache and makes it durable until `unit_ns` have been spent waiting. */
static void write_to_disk(struct server *server)
{
	static __attribute__((aligned(4096))) char block[65536];
	begin(COMMAND);
	int fd = open(server->file, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	end(COMMAND, DISK);
	if (fd < 0)
		die(server->file);
	uint64_t before = books.spent_ns[COMMAND][DISK];
	for (int i = 0; i < 2000 && books.spent_ns[COMMAND][DISK] - before < server->unit_ns; i++) {
		begin(COMMAND);
		if (pwrite(fd, block, sizeof(block), (off_t)(i % 16) * (off_t)sizeof(block)) < 0 ||
		    fsync(fd))
			die(server->file);
		end(COMMAND, DISK);
	}
	close(fd);
}

PHASE_CALL void tt_dispatch_command(struct server *server, enum command command)
{
	uint64_t unit_ns = server->unit_ns;
	const uint64_t flood_bytes = 1 << 20;
	char bytes[HEAD_BYTES];

	books.count[COMMAND]++;
	switch (command) {
	case SPIN:
		spin(COMMAND, unit_ns);
		break;
	case SLEEP:
		begin(COMMAND);
		doze(unit_ns);
		end(COMMAND, OTHER);
		break;
	case CONDITION:
		begin(COMMAND);
		wait_for_condition(&server->helper, unit_ns);
		end(COMMAND, FUTEX);
		break;
	case MUTEX:
		begin(COMMAND);
		have_mutex_held(&server->helper, unit_ns);
		pthread_mutex_lock(&server->helper.held);
		end(COMMAND, FUTEX);
		pthread_mutex_unlock(&server->helper.held);
		break;
	case LOCK_WAIT:
		begin(COMMAND);
		tt_lock_wait(server);
		end(COMMAND, LOCK);
		break;
	case RECEIVE:
		begin(COMMAND);
		ask(&server->peer, unit_ns, 0);
		receive(server);
		end_untold();
		answer(server);
		break;
	case READ:
		begin(COMMAND);
		ask(&server->peer, unit_ns, 0);
		if (read(server->peer.fd, bytes, HEAD_BYTES) != HEAD_BYTES ||
		    read(server->peer.fd, bytes, BODY_BYTES) != BODY_BYTES)
			die("read");
		end_untold();
		answer(server);
		break;
	case POLL:
		begin(COMMAND);
		ask(&server->peer, unit_ns, 0);
		poll_and_receive(server);
		end_untold();
		answer(server);
		break;
	case PIPE:
		read_pipe();
		break;
	case DISK_WRITE:
		write_to_disk(server);
		break;
	case SEND:
		ask(&server->peer, unit_ns, flood_bytes);
		end(COMMAND, ON_CPU);
		tt_net_real_write(server, block, flood_bytes);
		break;
	case COMMANDS:
		break;
	}
}

/* Waits for the client (idle), reads (record_read), dispatches. */
PHASE_CALL void tt_do_command(struct server *server, enum command command)
{
	books.count[RECORD_READ]++;
	begin(RECORD_READ);
	receive(server);
	end_wait(RECORD_READ, IDLE, NETWORK);
	spin(RECORD_READ, server->unit_ns / 2);
	tt_dispatch_command(server, command);
}

PHASE_CALL void tt_prepare_connection(struct server *server)
{
	books.count[CONNECT]++;
	spin(CONNECT, server->unit_ns);
	begin(CONNECT);
	ask(&server->peer, server->unit_ns, 0);
	receive(server);
	end(CONNECT, NETWORK);
}

PHASE_CALL void tt_end_connection(struct server *server)
{
	spin(DISCONNECT, server->unit_ns);
}

PHASE_CALL void tt_close_connection(struct server *server)
{
	books.count[DISCONNECT]++;
	begin(DISCONNECT);
	doze(server->unit_ns);
	end(DISCONNECT, OTHER);
}

PHASE_CALL void tt_handle_connection(struct server *server, int rounds)
{
	tt_prepare_connection(server);
	for (int round = 0; round < rounds; round++)
		for (enum command command = 0; command < COMMANDS; command++) {
			ask(&server->peer, server->unit_ns, 0);
			end(round || command ? COMMAND : IDLE, ON_CPU);
			tt_do_command(server, command);
		}
	tt_end_connection(server);
	tt_close_connection(server);
}

struct order {
	struct server *server;
	int rounds;
	int only; /* of the ways to talk to the client; -1: all */
};

/*
 * A thread parked for its next connection, as a thread cache does: that is idle, too. When it wakes
 * the next connection begins.
 */
static void park(struct server *server)
{
	begin(DISCONNECT);
	wait_for_condition(&server->helper, server->unit_ns);
	end_wait(CONNECT, IDLE, FUTEX);
}

static void *serve_states(void *argument)
{
	struct order *order = argument;
	open_books("tt-states");
	end(BACKGROUND, ON_CPU);
	tt_handle_connection(order->server, order->rounds);
	park(order->server);
	close_books("tt-states");
	return NULL;
}

static void run_states(struct server *server, int rounds)
{
	struct order order = {server, rounds, -1};
	pthread_t helper = start(help, &server->helper);
	pthread_join(start(serve_states, &order), NULL);
	server->helper.leave = true;
	sem_post(&server->helper.asked);
	pthread_join(helper, NULL);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Commands that talk to their client in every way: what tells a boundary that has no probe.
 *
 * Each is read, executed and answered as a server does it, by functions of their own. A client's
 * message comes `unit_ns` after it was asked for, so that every wait is as long.
 */
#ifndef TLSTAX_TRUTH_WIRE_H
#define TLSTAX_TRUTH_WIRE_H

#include "truth_server.h"

#include <sys/uio.h>

enum wire {
	SHORT_RESULT,
	RECORDS,	   /* a result in many records, with work between them */
	COMPRESSED,	   /* less is sent than the server asked for */
	CLOSE,		   /* a command that has no answer */
	LOCAL_FILE,	   /* the command receives, after a call that says so */
	CHANGE_USER,	   /* the command receives, and nothing says so */
	REMOTE,		   /* the command is a client of another server, before it answers */
	REMOTE_DISK,	   /* receives, waits for the disk, and answers */
	PIPELINED,	   /* two commands that came together */
	ALREADY,	   /* the next command is there before it is asked for */
	REMOTE_AFTER,	   /* answers, is a client of another server then, and sends nothing more */
	WIRES,		   /* what follows is not in the round of all: only sockets tell it so */
	LATE_BODY = WIRES, /* the body of the client's message comes some time after its head */
	LATE_END,	   /* the last byte does; received by a call that tells no size */
	PEEKED,		   /* the server looks whether there is a message before it takes it */
};

struct writing {
	uint64_t asked_bytes, sent_bytes, record_bytes;
	bool polls; /* waits for room in poll, not in send */
};

static const struct writing SHORT = {1, 1, 1, false};

static void send_record(struct server *server, uint64_t bytes, bool polls)
{
	struct pollfd ready = {.fd = server->peer.fd, .events = POLLOUT};
	while (bytes) {
		ssize_t sent = send(server->peer.fd, block, bytes,
				    MSG_NOSIGNAL | (polls ? MSG_DONTWAIT : 0));
		if (sent > 0)
			bytes -= (uint64_t)sent;
		else if (!polls || errno != EAGAIN || poll(&ready, 1, -1) != 1)
			die("send");
	}
}

/* Works on each record before it is sent, as encryption does, and on the result before the first.
 */
PHASE_CALL void tt_net_write_records(struct server *server, const struct writing *how,
				     uint64_t asked_bytes)
{
	uint64_t records = how->sent_bytes / how->record_bytes;
	books.count[RECORD_WRITE]++;
	if (asked_bytes != how->asked_bytes)
		die("tt_net_write_records");
	for (uint64_t i = 0; i < records; i++) {
		spin(RECORD_WRITE, server->unit_ns / records);
		begin(RECORD_WRITE);
		send_record(server, how->record_bytes, how->polls);
		end(RECORD_WRITE, NETWORK);
	}
	books.answered_ns = books.last_wall_ns;
}

/* The client reads the result late; the server has something to do after it. */
static void write_and_clean_up(struct server *server, const struct writing *how, uint64_t delay)
{
	ask(&server->peer, delay, how->sent_bytes);
	end(COMMAND, ON_CPU);
	tt_net_write_records(server, how, how->asked_bytes);
	spin(COMMAND, server->unit_ns / 2);
}

PHASE_CALL void tt_request_file(struct server *server)
{
	write_and_clean_up(server, &SHORT, 0);
}

/* Three packets from a client, with work on each. */
static void receive_packets(struct server *server, const struct peer *from, enum phase as)
{
	for (int i = 0; i < 3; i++) {
		begin(COMMAND);
		ask(from, server->unit_ns / 2, 0);
		receive_from(from->fd);
		end_wait(COMMAND, as, NETWORK);
		books.count[UNTOLD] += as == UNTOLD;
		spin(COMMAND, server->unit_ns / 4);
	}
}

PHASE_CALL void tt_dispatch_wire(struct server *server, enum wire wire)
{
	const struct writing records = {1 << 20, (1 << 20) + 64 * 22, 16384 + 22, wire % 2};
	const struct writing compressed = {1 << 20, 1 << 18, 1 << 14, false};
	const struct writing *how = &SHORT;
	uint64_t delay = 0;

	books.count[COMMAND]++;
	spin(COMMAND, server->unit_ns);
	switch (wire) {
	case RECORDS:
		how = &records;
		delay = server->unit_ns;
		break;
	case COMPRESSED:
		how = &compressed;
		break;
	case CLOSE:
		return;
	case LOCAL_FILE:
		tt_request_file(server);
		receive_packets(server, &server->peer, COMMAND);
		break;
	case CHANGE_USER:
		write_and_clean_up(server, how, 0);
		receive_packets(server, &server->peer, UNTOLD);
		break;
	case REMOTE:
		receive_packets(server, &server->remote, COMMAND);
		break;
	case REMOTE_DISK:
		receive_packets(server, &server->remote, COMMAND);
		write_to_disk(server);
		break;
	default:
		break;
	}
	write_and_clean_up(server, how, delay);
	if (wire == ALREADY) /* the next message comes meanwhile */
		spin(COMMAND, server->unit_ns);
	if (wire == REMOTE_AFTER)
		receive_packets(server, &server->remote, COMMAND);
}

enum reading { BLOCKS, POLLS, BUFFERED };

static void receive_body(int fd, enum wire wire)
{
	char bytes[BODY_BYTES];
	struct iovec left = {bytes, BODY_BYTES};

	while (left.iov_len) {
		ssize_t got = wire == LATE_END ? readv(fd, &left, 1)
					       : recv(fd, left.iov_base, left.iov_len, 0);
		if (got <= 0)
			die("recv");
		left.iov_base = (char *)left.iov_base + got;
		left.iov_len -= (size_t)got;
	}
}

/* Reads a command: in a call that blocks, or with an attempt first; or it was read with another. */
PHASE_CALL void tt_read_wire(struct server *server, enum wire wire, enum reading reading)
{
	struct pollfd ready = {.fd = server->peer.fd, .events = POLLIN};
	int flags = reading == POLLS ? MSG_DONTWAIT : 0;
	char bytes[HEAD_BYTES];

	books.count[RECORD_READ]++;
	begin(RECORD_READ);
	if (wire == PEEKED && recv(server->peer.fd, bytes, HEAD_BYTES, MSG_PEEK) != HEAD_BYTES)
		die("recv");
	while (reading != BUFFERED && recv(server->peer.fd, bytes, HEAD_BYTES, flags) != HEAD_BYTES)
		if (!flags || errno != EAGAIN || poll(&ready, 1, -1) != 1)
			die("recv");
	if (reading != BUFFERED)
		receive_body(server->peer.fd, wire);
	end_wait(RECORD_READ, IDLE, NETWORK);
	uint64_t received_ns = books.last_wall_ns;
	books.answered_ns = 0;
	if (reading != BUFFERED)
		spin(RECORD_READ, server->unit_ns / 2);
	tt_dispatch_wire(server, wire);
	if (!books.answered_ns)
		books.answered_ns = clock_ns(CLOCK_MONOTONIC);
	books.latency_ns += books.answered_ns - received_ns;
}

/* Asks the client for commands of a kind and serves them. `already`: the first was asked for. */
static void serve_commands(struct server *server, enum wire wire, enum reading reading,
			   bool already)
{
	struct request late = {server->unit_ns, 0, server->unit_ns, BODY_BYTES};

	if (wire == LATE_END)
		late.late_bytes = 1;
	if (!already && (wire == LATE_BODY || wire == LATE_END))
		ask_for(&server->peer, &late);
	else if (!already)
		ask(&server->peer, server->unit_ns, 0);
	end(books.count[RECORD_READ] ? COMMAND : IDLE, ON_CPU);
	if (wire == ALREADY) /* asked for now, sent while this one is executed */
		ask(&server->peer, server->unit_ns, 0);
	tt_read_wire(server, wire, reading);
	if (wire == PIPELINED) {
		tt_read_wire(server, SHORT_RESULT, BUFFERED);
		books.count[MERGED]++;
	}
}

static void *serve_wire(void *argument)
{
	struct order *order = argument;
	int first = order->only < 0 ? 0 : order->only;
	int last = order->only < 0 ? WIRES - 1 : order->only;
	bool already = false;
	open_books("tt-wire");
	end(BACKGROUND, ON_CPU);
	tt_ready();
	for (int round = 0; round < order->rounds; round++)
		for (int wire = first; wire <= last; wire++) {
			serve_commands(order->server, (enum wire)wire, round % 2 ? POLLS : BLOCKS,
				       already);
			already = wire == ALREADY;
		}
	tt_end_connection(order->server);
	close_books("tt-wire");
	return NULL;
}

#endif

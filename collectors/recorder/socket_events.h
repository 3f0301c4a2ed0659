/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tells that a thread received from a socket or sent to one.
 *
 * From Linux 6.3 on two tracepoints do. Before, programs at the returns of the functions that
 * these kernels call for it (of IPv4, IPv6 and Unix sockets) are told the same: the socket, the
 * result, the flags. Whether a host runs such programs is tried, never guessed.
 */
#ifndef TLSTAX_SOCKET_EVENTS_H
#define TLSTAX_SOCKET_EVENTS_H

#include "types.h"

enum socket_source { SOCKETS_UNKNOWN, SOCKETS_NONE, SOCKETS_TRACEPOINTS, SOCKETS_FUNCTIONS };

/* A place where a socket's event is seen. */
struct socket_place {
	const char *kernel_name; /* of a tracepoint, or a function */
	const char *program;	 /* of the ledger */
	enum socket_source source;
	bool receives;
};

enum { SOCKET_PLACES = 8 };
extern const struct socket_place socket_places[SOCKET_PLACES];
extern const char *const socket_source_names[];

/* What this host has, found by trial on the first call. */
enum socket_source sockets_source(void);

/* Use only this one, where this host has it: for tests. Before the first call of the others. */
void sockets_use(enum socket_source source);

/* Whether the source has the place: a kernel without IPv6 has no functions of it. */
bool sockets_have(enum socket_source source, u32 place);

/* Why there is none, as a clause. */
const char *sockets_lack(void);

/*
 * Count receives and sends as kinds of an event map (event_counters.h); links of the places, -1:
 * not used. Below 0: the kernel's error, or that there is no source.
 */
int sockets_count(int map, u32 receives, u32 sends, int pid, int links[SOCKET_PLACES]);

void sockets_count_end(int links[SOCKET_PLACES]);

#endif

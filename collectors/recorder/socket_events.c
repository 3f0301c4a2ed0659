// SPDX-License-Identifier: GPL-2.0-only
#include "socket_events.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "event_counters.h"
#include "kernel_features.h"
#include "watchdog.h"

/* Arguments of the functions: socket, message, bytes, and to receive flags. */
enum { RECEIVE_ARGUMENTS = 4, SEND_ARGUMENTS = 3 };
enum { KIND_RECEIVE, KIND_SEND, KINDS };

const struct socket_place socket_places[SOCKET_PLACES] = {
	{"sock_recv_length", "on_receive", SOCKETS_TRACEPOINTS, true},
	{"sock_send_length", "on_send", SOCKETS_TRACEPOINTS, false},
	{"inet_recvmsg", "inet_received", SOCKETS_FUNCTIONS, true},
	{"inet_sendmsg", "inet_sent", SOCKETS_FUNCTIONS, false},
	{"inet6_recvmsg", "inet6_received", SOCKETS_FUNCTIONS, true},
	{"inet6_sendmsg", "inet6_sent", SOCKETS_FUNCTIONS, false},
	{"unix_stream_recvmsg", "unix_received", SOCKETS_FUNCTIONS, true},
	{"unix_stream_sendmsg", "unix_sent", SOCKETS_FUNCTIONS, false},
};
const char *const socket_source_names[] = {"unknown", "none", "tracepoints", "functions", NULL};

static struct {
	enum socket_source wanted, found;
	u32 numbers[SOCKET_PLACES]; /* in the kernel's types, 0: it does not have it */
	char lack[160];
} sockets;

static void find_function(const struct btf *btf, u32 place)
{
	const struct socket_place *wanted = &socket_places[place];
	u32 arguments = wanted->receives ? RECEIVE_ARGUMENTS : SEND_ARGUMENTS;
	s32 number = btf__find_by_name_kind(btf, wanted->kernel_name, BTF_KIND_FUNC);
	const struct btf_type *function = number > 0 ? btf__type_by_id(btf, (u32)number) : NULL;
	const struct btf_type *type = function ? btf__type_by_id(btf, function->type) : NULL;

	if (type && btf_is_func_proto(type) && btf_vlen(type) == arguments)
		sockets.numbers[place] = (u32)number;
}

static void find_tracepoint(const struct btf *btf, u32 place)
{
	char name[64];

	snprintf(name, sizeof(name), "btf_trace_%s", socket_places[place].kernel_name);
	s32 number = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
	sockets.numbers[place] = number > 0 ? (u32)number : 0;
}

/* One receive and one send of this process: as many are counted, or no such socket can be made. */
static bool is_seen(int map, int family)
{
	int pair[2] = {-1, -1};
	u64 receives = events_counted(map, KIND_RECEIVE, false);
	u64 sends = events_counted(map, KIND_SEND, false);
	char byte = 0;

	if (family == AF_UNIX) {
		if (socketpair(family, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			return false;
	} else {
		/* Calls on a socket without a peer return with an error, which is an event, too. */
		pair[0] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (pair[0] < 0)
			return family == AF_INET6 && errno == EAFNOSUPPORT;
		pair[1] = dup(pair[0]);
	}
	(void)!send(pair[0], &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)!recv(pair[1], &byte, sizeof(byte), MSG_DONTWAIT);
	close(pair[0]);
	close(pair[1]);
	return events_counted(map, KIND_RECEIVE, false) == receives + 1 &&
	       events_counted(map, KIND_SEND, false) == sends + 1;
}

static bool try_functions(void)
{
	static const struct {
		int family;
		const char *name;
	} kinds[] = {{AF_INET, "IPv4"}, {AF_INET6, "IPv6"}, {AF_UNIX, "Unix"}};
	int links[SOCKET_PLACES], map = event_map(KINDS);

	sockets.found = SOCKETS_FUNCTIONS; /* what is tried */
	watchdog_arm(true);
	int error = map < 0 ? map : sockets_count(map, KIND_RECEIVE, KIND_SEND, getpid(), links);
	bool works = !error;
	if (error)
		snprintf(sockets.lack, sizeof(sockets.lack),
			 "programs at the returns of its socket functions are refused (%s)",
			 strerror(-error));
	for (u32 i = 0; i < COUNT(kinds) && works; i++) {
		works = is_seen(map, kinds[i].family);
		watchdog_beat();
		if (!works)
			snprintf(sockets.lack, sizeof(sockets.lack),
				 "programs at the returns of its socket functions missed those of "
				 "%s",
				 kinds[i].name);
	}
	if (map >= 0) {
		sockets_count_end(links);
		close(map);
	}
	watchdog_arm(false);
	return works;
}

/* Before kernel commit e21aa341785c (Linux 5.12), which brought this struct, the code around a
 * function is freed when its program is detached, also while a thread sleeps in the function, as
 * threads do in a receive. That is not tried. */
static bool are_functions_safe(const struct btf *btf)
{
	if (btf && btf__find_by_name_kind(btf, "bpf_tramp_image", BTF_KIND_STRUCT) > 0)
		return true;
	strcpy(sockets.lack, "programs at the returns of its socket functions are not safe");
	return false;
}

static bool may_use(enum socket_source source)
{
	return !sockets.wanted || sockets.wanted == source;
}

static enum socket_source find_source(void)
{
	const struct btf *btf = kernel_types();

	for (u32 i = 0; i < SOCKET_PLACES && btf; i++) {
		if (socket_places[i].source == SOCKETS_TRACEPOINTS)
			find_tracepoint(btf, i);
		else
			find_function(btf, i);
	}
	strcpy(sockets.lack, "it has no such tracepoints");
	if (may_use(SOCKETS_TRACEPOINTS) && sockets.numbers[0] && sockets.numbers[1])
		return SOCKETS_TRACEPOINTS;
	bool works = may_use(SOCKETS_FUNCTIONS) && are_functions_safe(btf) && try_functions();
	return works ? SOCKETS_FUNCTIONS : SOCKETS_NONE;
}

enum socket_source sockets_source(void)
{
	if (!sockets.found)
		sockets.found = find_source();
	return sockets.found;
}

void sockets_use(enum socket_source source)
{
	sockets.wanted = source;
}

bool sockets_have(enum socket_source source, u32 place)
{
	return socket_places[place].source == source && sockets.numbers[place];
}

const char *sockets_lack(void)
{
	return sockets.lack;
}

int sockets_count(int map, u32 receives, u32 sends, int pid, int links[SOCKET_PLACES])
{
	enum socket_source source = sockets_source();
	int error = source == SOCKETS_NONE ? -ENOTSUP : 0;

	for (u32 i = 0; i < SOCKET_PLACES; i++) {
		u32 kind = socket_places[i].receives ? receives : sends;
		links[i] = -1;
		if (error || !sockets_have(source, i))
			continue;
		links[i] = source == SOCKETS_FUNCTIONS
				   ? count_returns(map, kind, pid, sockets.numbers[i])
				   : count_tracepoint(map, kind, pid, socket_places[i].kernel_name);
		error = links[i] < 0 ? links[i] : 0;
		watchdog_beat();
	}
	return error;
}

void sockets_count_end(int links[SOCKET_PLACES])
{
	for (u32 i = 0; i < SOCKET_PLACES; i++) {
		if (links[i] >= 0)
			close(links[i]);
		watchdog_beat();
	}
}

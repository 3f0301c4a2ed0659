/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose socket it is: a client's, or one to another server, which the target asks itself.
 */
#ifndef TLSTAX_SOCKETS_BPF_H
#define TLSTAX_SOCKETS_BPF_H

#include "waits.bpf.h"

enum { FAMILY_UNIX = 1, FAMILY_IPV4 = 2, FAMILY_IPV6 = 10 };
enum { SOCKET_LISTENS = 10 }; /* TCP_LISTEN */
enum { EVENT_READABLE = 1 };  /* POLLIN */
enum { PORTS = 1 << 16 };

/* The TCP ports that the target listens on. */
struct served_ports {
	u64 bits[PORTS / 64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct served_ports);
} served_ports SEC(".maps");

static __always_inline u64 *port_bits(u32 port)
{
	u32 zero = 0;
	struct served_ports *ports = bpf_map_lookup_elem(&served_ports, &zero);
	return ports ? &ports->bits[(port & (PORTS - 1)) / 64] : NULL;
}

static __always_inline bool is_internet(u32 family)
{
	return family == FAMILY_IPV4 || family == FAMILY_IPV6;
}

/* Notes the ports before the other programs are attached. */
SEC("iter/task_file")
int each_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (!task || !file || task->tgid != config.tgid ||
	    (file->f_inode->i_mode & FILE_TYPE_MASK) != FILE_SOCKET)
		return 0;
	struct sock *socket = BPF_CORE_READ((struct socket *)file->private_data, sk);
	u32 port = BPF_CORE_READ(socket, __sk_common.skc_num);
	u64 *bits = port_bits(port);
	if (bits && is_internet(BPF_CORE_READ(socket, __sk_common.skc_family)) &&
	    BPF_CORE_READ(socket, __sk_common.skc_state) == SOCKET_LISTENS)
		__sync_fetch_and_or(bits, 1ULL << (port & 63));
	return 0;
}

/* Accepted sockets have their listener's port or address; a connecting Unix socket has none. */
static __noinline bool is_accepted(u64 address)
{
	struct sock *socket = (struct sock *)address;
	u32 family = BPF_CORE_READ(socket, __sk_common.skc_family);

	if (family == FAMILY_UNIX)
		return BPF_CORE_READ((struct unix_sock *)socket, addr) != NULL;
	if (!is_internet(family))
		return false;
	u32 port = BPF_CORE_READ(socket, __sk_common.skc_num);
	u64 *bits = port_bits(port);
	return bits && *bits >> (port & 63) & 1;
}

/* The descriptor that poll or select waits to read from, -1: none. Of several, one. */
__noinline s32 polled_descriptor(s64 number, u64 first_argument, u64 readable)
{
	struct {
		s32 descriptor;
		u16 events, returned;
	} first = {};
	u64 bits = 0;

	if (number != CALL_SELECT && number != CALL_PSELECT) {
		bpf_probe_read_user(&first, sizeof(first), (void *)first_argument);
		return first.events & EVENT_READABLE ? first.descriptor : -1;
	}
	u32 highest = first_argument - 1;
	if (!readable || bpf_probe_read_user(&bits, sizeof(bits), (u64 *)readable + highest / 64) ||
	    !(bits >> (highest & 63) & 1))
		return -1;
	return (s32)highest;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The network that a client connects from, where that is asked for.
 *
 * A server gives its socket to the TLS library just before the handshake, on the same thread. Only
 * as many bits of the address as are asked for get into a record: the rest never leaves the kernel.
 */
#ifndef TLSTAX_NETWORKS_BPF_H
#define TLSTAX_NETWORKS_BPF_H

#include "sockets.bpf.h"

enum { BITS_OF_WORD = 32 };
#define MAPPED_WORD 0x0000ffffU /* the third of an IPv4 address in an IPv6 one, by host order */

/* Clear all but the first bits of an address. */
static __always_inline void shorten(u32 words[NETWORK_WORDS], u32 bits)
{
#pragma unroll
	for (u32 i = 0; i < NETWORK_WORDS; i++) {
		u32 before = i * BITS_OF_WORD;
		u32 kept = bits > before ? bits - before : 0;
		u32 mask = kept < BITS_OF_WORD ? ~(~0U >> kept) : ~0U;
		words[i] &= __builtin_bswap32(mask); /* addresses are in the network's order */
	}
}

static __always_inline void read_peer(struct sock *socket, struct network *peer)
{
	u32 family = BPF_CORE_READ(socket, __sk_common.skc_family);
	u32 words[NETWORK_WORDS] = {};

	if (family == FAMILY_IPV4) {
		words[0] = BPF_CORE_READ(socket, __sk_common.skc_daddr);
	} else if (family == FAMILY_IPV6 &&
		   bpf_core_field_exists(socket->__sk_common.skc_v6_daddr)) {
		bpf_probe_read_kernel(words, sizeof(words), &socket->__sk_common.skc_v6_daddr);
		if (!words[0] && !words[1] && words[2] == __builtin_bswap32(MAPPED_WORD)) {
			family = FAMILY_IPV4; /* a socket for both */
			words[0] = words[3];
			words[2] = words[3] = 0;
		}
	} else if (family != FAMILY_UNIX) {
		return;
	}
	shorten(words, family == FAMILY_IPV4 ? config.network_bits : config.network6_bits);
	__builtin_memcpy(peer->address, words, sizeof(peer->address));
	peer->family = family;
}

/* The thread's next handshake is on this descriptor. */
__noinline int note_peer(struct thread_slot *slot, u64 descriptor)
{
	if (!slot)
		return 0;
	slot->peer.family = 0;
	if (!config.network_bits)
		return 0;
	struct file *file = file_of(files_of(bpf_get_current_task_btf()), descriptor);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & FILE_TYPE_MASK) != FILE_SOCKET)
		return 0;
	struct socket *held = BPF_CORE_READ(file, private_data);
	struct sock *socket = BPF_CORE_READ(held, sk);
	if (socket)
		read_peer(socket, &slot->peer);
	return 0;
}

/* A handshake begins: of a server's side what was noted before is its client. */
static __always_inline void take_peer(struct thread_slot *slot)
{
	if (likely(!slot->peer.family))
		return;
	if (slot->handshake.is_server)
		slot->handshake.network = slot->peer;
	slot->peer.family = 0;
}

#endif

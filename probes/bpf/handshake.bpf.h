/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One record per connection's handshake, keyed by the SSL pointer.
 *
 * A non-blocking server calls SSL_accept again and again and waits outside of it; a pool may even
 * continue on another thread. While a handshake runs, its account is in the thread's slot, and
 * charge() fills it; when the thread serves another connection, the account moves to a map.
 */
#ifndef TLSTAX_HANDSHAKE_BPF_H
#define TLSTAX_HANDSHAKE_BPF_H

#include "networks.bpf.h"
#include "phases.bpf.h"

/* From openssl/ssl.h. */
enum { SSL_NOTHING = 1 };	    /* SSL_want(): not waiting for anything */
enum { SSL_RECEIVED_SHUTDOWN = 2 }; /* SSL_get_shutdown(): a fatal alert, too */
enum { TLS_ST_BEFORE = 0 };	    /* SSL_get_state(): no message was sent or received yet */

/* From gnutls/gnutls.h: gnutls_handshake() is to be called again. */
enum { GNUTLS_WARNING_ALERT = -16, GNUTLS_AGAIN = -28, GNUTLS_INTERRUPTED = -52 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct handshake);
} handshakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

__noinline s32 read_field(u64 object, s32 offset)
{
	s32 value = -1;
	if (offset < 0 || bpf_probe_read_user(&value, sizeof(value), (void *)(object + offset)))
		return -1;
	return value;
}

static __always_inline u64 read_pointer(u64 object, s32 offset)
{
	u64 value = 0;
	if (!object || offset < 0)
		return 0;
	bpf_probe_read_user(&value, sizeof(value), (void *)(object + offset));
	return value;
}

/*
 * Whether a call that did not succeed was the last one. After an alert of the other side the
 * library still says that it wants to read, but no longer that the connection is open.
 */
static __always_inline bool has_ended(u64 ssl)
{
	if (read_field(ssl, config.off_rwstate) == SSL_NOTHING)
		return true;
	s32 shutdown = read_field(ssl, config.off_shutdown); /* below 0: not known */
	return shutdown > 0 && shutdown & SSL_RECEIVED_SHUTDOWN;
}

/* Version, cipher and resumption from the connection itself, at the offsets its accessors use. */
static __always_inline void read_parameters(struct handshake *handshake)
{
	u64 ssl = handshake->ssl;
	u64 session = read_pointer(ssl, config.off_session);
	u64 cipher = read_pointer(session, config.off_session_cipher);
	handshake->tls_version = read_field(ssl, config.off_version);
	handshake->resumed = read_field(ssl, config.off_hit);
	handshake->cipher_id = cipher ? read_field(cipher, config.off_cipher_id) : -1;
}

__noinline int put_aside(struct thread_slot *slot)
{
	if (!slot)
		return 0;
	if (!slot->handshake.active)
		return 0;
	struct handshake kept = slot->handshake; /* Linux 6.1 stores nothing from an argument */
	if (bpf_map_update_elem(&handshakes, &kept.ssl, &kept, BPF_ANY))
		count_loss(LOSS_HANDSHAKE_MAP_FULL);
	slot->handshake.active = 0;
	return 0;
}

__noinline int send_record(struct handshake *handshake, u64 now, u32 tid, u32 outcome)
{
	if (!handshake)
		return 0;
	if (FAULT_DROPS_HANDSHAKE()) {
		handshake->active = 0;
		return 0;
	}
	struct handshake *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	handshake->end_ns = now;
	handshake->outcome = outcome;
	handshake->tid = tid;
	handshake->active = 0;
	if (!record)
		return count_loss(LOSS_HANDSHAKE_RING_FULL);
	__builtin_memcpy(record, handshake, sizeof(*record));
	record->ssl = 0;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/*
 * Make the connection's handshake the slot's; false when the call is not part of one. The library
 * handles what comes after a handshake (tickets, key updates) by the same functions, so a record
 * begins only on a connection on which nothing was exchanged yet, as far as that can be read.
 */
__noinline bool start_or_resume(struct thread_slot *slot, u64 now, u64 ssl, u64 cookie)
{
	if (!slot)
		return false;
	struct handshake *handshake = &slot->handshake;
	bool foreign = COOKIE_ZERO_IS_SUCCESS(cookie); /* the accessors belong to another library */
	u32 side = COOKIE_SIDE(cookie);
	if (handshake->active && handshake->ssl == ssl)
		return true;
	struct handshake *kept = bpf_map_lookup_elem(&handshakes, &ssl);
	if (!kept && !foreign && read_field(ssl, config.off_state) > TLS_ST_BEFORE)
		return false;
	put_aside(slot);
	if (kept) {
		__builtin_memcpy(handshake, kept, sizeof(*handshake));
		bpf_map_delete_elem(&handshakes, &ssl);
		return true;
	}
	__builtin_memset(handshake, 0, sizeof(*handshake));
	handshake->ssl = ssl;
	handshake->start_ns = now;
	handshake->tls_version = -1;
	handshake->cipher_id = -1;
	handshake->resumed = -1;
	handshake->is_server = -1;
	if (side || config.client == 1)
		handshake->is_server = side == SIDE_SERVER;
	else if (!foreign)
		handshake->is_server = read_field(ssl, config.off_server);
	take_peer(slot);
	handshake->active = 1;
	return true;
}

/* Drop the frame that represents a handshake between two calls. */
static __always_inline void unstitch(struct thread_slot *slot)
{
	u32 depth = slot->depth;
	if (depth && depth <= MAX_FRAMES &&
	    slot->frames[(depth - 1) & (MAX_FRAMES - 1)].flags & FRAME_STITCHED)
		slot->depth--;
}

/*
 * A command of a server asks another server: its time is the command's, and the record, which says
 * whose side it was, has no operations.
 */
static __always_inline bool is_asking(struct thread_slot *slot)
{
	return !config.client && slot->handshake.is_server == 0 &&
	       innermost_phase(slot) == PHASE_COMMAND;
}

__noinline int enter_handshake_call(struct thread_slot *slot, u64 now, u64 sp, u64 ssl, u64 cookie)
{
	if (!slot)
		return 0;
	if (config.client)
		slot->role = ROLE_CONNECTION;
	charge(slot, now);
	heal(slot, now, sp);
	if (slot->call_sp > sp && slot->handshake.active && slot->handshake.ssl == ssl) {
		settle(slot, now); /* OpenSSL 1.0 calls itself once it knows the version */
		return 0;
	}
	slot->call_sp = sp;
	if (!start_or_resume(slot, now, ssl, cookie)) {
		slot->flags |= FLAG_NO_RECORD;
		settle(slot, now);
		return 0;
	}
	slot->flags &= ~FLAG_NO_RECORD;
	slot->pending.kind = PENDING_NONE; /* no command is in progress */
	unstitch(slot);
	slot->handshake.call_count++;
	if (in_handshake(slot) || is_asking(slot))
		settle(slot, now); /* the server's own function may have opened the phase */
	else
		push_phase(slot, now, sp, PHASE_HANDSHAKE, 0, 0, 0);
	return 0;
}

/*
 * The library's handshake function returned. 1 is success, 0 in GnuTLS. Anything else is a failure
 * only when the connection does not want to read or write more; with the offset unknown the next
 * call decides. A function that blocks has already waited: there is no next call. Returns whether
 * it ended a call.
 */
__noinline bool leave_handshake_call(struct thread_slot *slot, u64 now, u64 sp, s32 result,
				     u64 cookie)
{
	if (!slot)
		return false;
	struct handshake *handshake = &slot->handshake;
	bool foreign = COOKIE_ZERO_IS_SUCCESS(cookie);
	bool success = foreign ? result == 0 : result == 1;
	bool finished_now = success || COOKIE_BLOCKING(cookie);
	u32 depth = slot->depth;
	struct frame *top = NULL;

	charge(slot, now);
	if (COOKIE_STRAY(cookie) && !slot->call_sp) {
		settle(slot, now);
		return false;
	}
	if (sp < slot->call_sp + sizeof(u64)) {
		settle(slot, now); /* the inner one of two calls */
		return true;
	}
	slot->call_sp = 0;
	if (slot->flags & FLAG_NO_RECORD) {
		slot->flags &= ~FLAG_NO_RECORD;
		settle(slot, now);
		return true;
	}
	if (!handshake->active) {
		count_loss(LOSS_UNMATCHED_EXIT);
		return true;
	}
	if (!finished_now && foreign)
		finished_now = result != GNUTLS_AGAIN && result != GNUTLS_INTERRUPTED &&
			       result != GNUTLS_WARNING_ALERT;
	else if (!finished_now && config.off_rwstate >= 0)
		finished_now = has_ended(handshake->ssl);
	if (depth && depth <= MAX_FRAMES)
		top = &slot->frames[(depth - 1) & (MAX_FRAMES - 1)];
	/* Frames of this very call lie below the caller; the server's own frame above it. */
	if (top && !(top->flags & FRAME_STITCHED) && top->phase == PHASE_HANDSHAKE &&
	    top->sp + sizeof(u64) == sp) {
		if (finished_now)
			slot->depth--;
		else
			top->flags |= FRAME_STITCHED;
	}
	if (finished_now) {
		if (success && !foreign)
			read_parameters(handshake);
		if (!is_asking(slot))
			finished(slot, PHASE_HANDSHAKE, now - handshake->start_ns);
		send_record(handshake, now, slot->tid, success ? OUTCOME_SUCCESS : OUTCOME_FAILURE);
	}
	settle(slot, now);
	return true;
}

__noinline int enter_handshake_free(struct thread_slot *slot, u64 now, u64 ssl)
{
	if (!slot)
		return 0;
	struct handshake *handshake = &slot->handshake;
	if (handshake->active && handshake->ssl == ssl) {
		charge(slot, now);
		unstitch(slot);
		settle(slot, now);
		send_record(handshake, now, slot->tid, OUTCOME_ABANDONED);
		return 0;
	}
	struct handshake *kept = bpf_map_lookup_elem(&handshakes, &ssl);
	if (!kept)
		return 0;
	send_record(kept, now, slot->tid, OUTCOME_ABANDONED);
	bpf_map_delete_elem(&handshakes, &ssl);
	return 0;
}

#endif

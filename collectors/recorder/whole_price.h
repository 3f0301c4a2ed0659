/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What recording costs for a send of the target, estimated from pairs of short stretches with the
 * ledger and without anything of it.
 *
 * Of the target it is the CPU time that a send takes more; of the host that of the target and of
 * its clients there, which it wakes later and whose caches the programs use. Both are medians over
 * the pairs (median.h), and both are known from the prices of hits and events, too, about to a
 * half, of which the target pays the larger part. Each counts by how certain it is: where sends
 * scatter little, only what was measured, in a storm of connects a part of it. What prices say of
 * windows is multiplied to be that of the target, and what clients paid is added for each event of
 * the target. So what windows say agrees with what recording did a moment before, and varies with
 * hits and events since.
 *
 * Arithmetic: nothing here reads a clock or attaches a probe.
 */
#ifndef TLSTAX_WHOLE_PRICE_H
#define TLSTAX_WHOLE_PRICE_H

#include "median.h"
#include "senders.h"

/* In shorter ones a send more or less at an edge is much. Far fewer than are expected, or dear
 * stretches would be left out. */
#define WHOLE_SENDS_LEAST 40.0

enum are_clients { CLIENTS_NONE, CLIENTS_PERHAPS, CLIENTS_SURELY };

/* What happened in a stretch. */
struct whole_arm {
	double sends;
	double cpu_ns;	   /* of the target */
	double clients_ns; /* of its clients on this host */
	double events;	   /* of the target for which programs ran */
	double said_ns;	   /* what its probes and events cost by their prices */
	double neighbours_said_ns;
};

struct whole_price {
	u32 pairs_count;
	/* For a send, of each pair: */
	double server_ns[PAIRS_MOST], host_ns[PAIRS_MOST]; /* more CPU time */
	double said_ns[PAIRS_MOST], others_ns[PAIRS_MOST]; /* what prices say of both parts of it */
	double events[PAIRS_MOST], without_ns[PAIRS_MOST];

	enum are_clients clients;
	double in_situ; /* what a trap counted in the stretches, of its price in a loop */
	struct median server, host;
	double server_said_ns, host_said_ns;
	double server_told_ns, host_told_ns; /* by both, which windows tell */
	double send_ns;			     /* of the target's CPU time a send takes alone */
	double ratio;			     /* of what is told of the target to what prices say */
	double event_ns;		     /* that clients pay for an event of the target */
	bool is_server_used, is_host_used;
};

/* How pairs differ that may be of clients: by each sender, and by the target. */
struct whole_rates {
	u32 pairs_count;
	double slower[PAIRS_MOST]; /* of the time that passes for a send of the target */
	double sends[SENDERS_MOST][PAIRS_MOST]; /* of a sender, for one of the target */
	double all[PAIRS_MOST];			/* of all of them */
	u32 silent[SENDERS_MOST];		/* pairs in which it did not send */
};

/*
 * Whether those that send do it for the target: then they send as often for each of its sends
 * while that takes longer. One that works for itself goes on by time, a little slower where it
 * competes for the same CPUs. Its CPU time for a send of the target would rise without costing it
 * anything, so CPU time counts of sure clients only. Where it cannot be told, as a send takes as
 * long in both or scatters, or as they have ended, they are perhaps clients.
 */
enum are_clients are_clients(const struct whole_rates *rates, u32 count);

/* Take a pair. False: too little happened in it, it is left out. */
bool whole_price_add(struct whole_price *price, const struct whole_arm *without,
		     const struct whole_arm *with);

/* Estimate, when the last pair is in. */
void whole_price_estimate(struct whole_price *price);

#endif

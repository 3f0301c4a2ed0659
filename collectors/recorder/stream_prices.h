/* SPDX-License-Identifier: GPL-2.0-only */
/* What recording costs, as the stream tells it: a part of stream.h. */
#ifndef TLSTAX_STREAM_PRICES_H
#define TLSTAX_STREAM_PRICES_H

#include "counts.h"

/* How a budget is used, by a trial: CPU times are for a second, levels as in START. */
struct stream_budget {
	u64 share_ppm; /* of the target's CPU time that measuring may cost; 0: nothing fitted, and
			* there is no limit */
	u64 base_ns;   /* CPU time that it is a share of: the target's, or a least one */
	u64 dense_ns;  /* length of the windows in which everything is on */
	u64 cycle_ns;  /* from one to the next; not more than dense_ns: all the time */
	u64 probes_ns; /* expected overhead */
	u64 scheduler_ns;  /* of its own events */
	u64 neighbours_ns; /* of those of other processes */
	u64 samples_ns;
	u64 recorder_ns;
	u64 level_base_ns; /* the same while the level was chosen; 0: it was given */
	u64 flow_ns;	   /* what the ledger's events were then expected to cost at level flow */
	u64 record_ns;	   /* and at level record */
	char dense[16];	   /* what is on in these windows, or all the time */
	char light[16];	   /* and between them */
};

/* What a probe hit costs in the target, by stretches with its probes and without. */
struct stream_hit_price {
	u64 pairs_count; /* of stretches */
	u64 hit_ns;	 /* with its program: median of the pairs */
	s64 low_ns;	 /* of its 95 % interval */
	s64 high_ns;
	u64 factor_ppm; /* of its price in a loop that a trap costs; 0: none */
	u64 is_used;	/* 1: for what windows cost from here on; 0: it is not certain enough */
};

/* What recording costs for a send of the target, by stretches with it and without. */
struct stream_whole_price {
	u64 pairs_count;   /* of stretches */
	u64 send_ns;	   /* CPU time of the target that a send takes without recording */
	s64 server_ns;	   /* and how much more with it: median of the pairs */
	s64 server_low_ns; /* of its 95 % interval */
	s64 server_high_ns;
	s64 host_ns; /* the same of the target and its clients on this host */
	s64 host_low_ns;
	s64 host_high_ns;
	u64 server_said_ns; /* what the prices of hits and events say of server_ns */
	u64 host_said_ns;
	s64 server_told_ns; /* by what was measured and by prices, each as certain as it is */
	s64 host_told_ns;   /* the same; by server_told_ns without sure clients */
	u64 ratio_ppm;	    /* of server_told_ns to server_said_ns; 0: none */
	s64 event_ns;	    /* that clients pay for an event of the target */
	u64 is_server_used; /* 1: windows are told by ratio_ppm; 0: too few pairs, or none */
	u64 has_clients;    /* 1: there are some, and they surely only wait for the target */
	u64 is_host_used;   /* 1: and by event_ns; without has_clients: there may be some */
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The command line. */
#ifndef TLSTAX_OPTIONS_H
#define TLSTAX_OPTIONS_H

#include "plan.h"
#include "socket_events.h"

struct options {
	const char *plan, *output;
	const char *tables; /* NULL: beside the plan, if they are there */
	int pid;
	u64 for_ns; /* 0: until it is ended */
	u64 window_ns;
	u64 calibrate_ns;   /* mean time between calibration stretches; 0: none */
	double budget;	    /* share of the target's CPU time; 0: none */
	double floor_cpus;  /* of which the budget is a share at least */
	bool chooses_level; /* flow or record, by what they cost */
	bool measures_cost; /* what recording costs in the target */
	bool or_everything; /* record everything if nothing fits the budget */
	int reader;	    /* process whose CPU time counts, too; 0: none */
	u32 sample_hz;
	u32 walks_most; /* stacks of waits that are walked in a second */
	u32 slots;	/* 0: by the threads of the target */
	int level;	/* -1: that of the plan */
	size_t queue_bytes;
	u32 network_bits, network6_bits; /* of clients' addresses that are kept; 0: none */
	bool any_kernel, may_be_traced;
	bool is_serving, removes_itself;
	bool is_pricing;	    /* measure what a probe costs, and nothing else */
	enum socket_source sockets; /* the only one to use; SOCKETS_UNKNOWN: what this host has */
	bool is_controlled;	    /* standard input says when windows end */
	bool keeps_going;	    /* a process that cannot be recorded is left out */
};

/* -1: failure says what is wrong. 1: help or version was printed. */
int options_parse(struct options *options, int count, char **arguments);

/* Check the options of a further target: those of the first one that are for all are not in them,
 * and are taken over. */
int options_share(struct options *options, const struct options *first);

#endif

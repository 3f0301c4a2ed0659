/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a probe hit costs in the target, estimated from pairs of short stretches with its dense
 * probes and without.
 *
 * All else is the same in both. So what a send costs more CPU time with the probes, times sends a
 * hit, is the price of a hit, with its program. Less the program, as the kernel timed it, and over
 * the price in a loop it is the factor that a plan's prices are multiplied with. Both are medians
 * over the pairs (median.h).
 *
 * Arithmetic: nothing here reads a clock or attaches a probe.
 */
#ifndef TLSTAX_HIT_PRICE_H
#define TLSTAX_HIT_PRICE_H

#include "median.h"

/* A stretch with nothing but the target's own work is thinner than this. */
#define PRICE_SENDS_LEAST 200.0

/* What happened in a stretch. */
struct price_arm {
	double cpu_ns;	  /* of the target */
	double sends;	  /* its operations are counted by them */
	double hits;	  /* of all probes */
	double loop_ns;	  /* what these cost in a loop, without their programs */
	double bodies_ns; /* run time of their programs */
};

struct hit_price {
	u32 pairs_count;
	double hits_ns[PAIRS_MOST], factors[PAIRS_MOST]; /* of each pair */
	struct median hit; /* of a hit with its program, ns; from the least pairs on */
	double factor;
	bool is_measured; /* certain enough to be used */
};

/*
 * A trap is dearer in a server than in a loop, because the server's own work has filled the caches:
 * a multiple (collectors/host/probe_costs/prices.py). A server that computes little has colder
 * ones: others replace what it has in them between its connections. Measured at the two ends, from
 * 0.09 to 0.2 CPUs and on saturated hosts (docs/measurements/overhead.md); it is that of the target
 * where it could be measured.
 */
#define IN_SITU 3.0
#define IN_SITU_COLD 4.5
#define COLD_CPUS 0.25 /* up to so many it is cold, */
#define WARM_CPUS 1.0  /* and from so many on warm */

/* The usual multiple in a target that uses so many CPUs. */
double usual_in_situ(double cpus);

/* Take a pair, and estimate anew. False: too little happened in it, it is left out. */
bool hit_price_add(struct hit_price *price, const struct price_arm *without,
		   const struct price_arm *with);

#endif

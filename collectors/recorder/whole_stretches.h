/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Short stretches with the ledger and without it, for whole_price.h: before a recording without a
 * budget begins, which is some seconds later then. Who is idle at that time is not waited for.
 *
 * Samples are on in both. Sends are counted by a program of their own, in both, by
 * process: those that send about as often as the target answers, and as much less often as it does
 * when it is recorded, are its clients on this host.
 */
#ifndef TLSTAX_WHOLE_STRETCHES_H
#define TLSTAX_WHOLE_STRETCHES_H

/* Measure, if it is asked for; then all is as if it had just been attached. -1: probes are refused.
 */
int whole_measure(void);

/* Tell what was estimated, once, when there is room. */
void whole_put(void);

#endif

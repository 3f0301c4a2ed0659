/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How often the events happen at which a ledger would run, counted before anything of it is
 * attached.
 */
#ifndef TLSTAX_RATES_H
#define TLSTAX_RATES_H

#include "levels.h"

/* Count for 100 ms; false: this kernel does not have the events, or refused the programs. */
bool rates_count(int pid, struct rates *rates);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* From options and plans to the first windows. */
#ifndef TLSTAX_BEGINNING_H
#define TLSTAX_BEGINNING_H

#include <stdbool.h>

/*
 * Load, attach and start the recording of all targets. -1: at least one of them cannot be recorded;
 * what was attached is still attached. With --keep-going that one is left out instead.
 */
int begin_all(void);

/* Whether a signal waits that ends it. */
bool beginning_is_interrupted(void);

#endif

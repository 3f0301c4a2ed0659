/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Names of single addresses of the kernel. The list of all its names (/proc/kallsyms) takes 50 ms
 * to read, and a recording has some hundred addresses; a program may ask for the name of one.
 */
#ifndef TLSTAX_KERNEL_LOOKUP_H
#define TLSTAX_KERNEL_LOOKUP_H

#include "types.h"

#include "stream.h"

/* Load the program, once, while that is allowed. It needs Linux 5.14. */
void kernel_lookup_prepare(void);

/* Whether names can be asked for. */
bool kernel_lookup_works(void);

/* The name of an address of a function; false: the kernel does not know it. */
bool kernel_lookup(u64 address, struct stream_kernel_name *name);

#endif

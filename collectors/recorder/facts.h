/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What planning on another host needs to know of this one and of a process: a fixed list of texts
 * of /proc and /sys. Names of frames are their paths without the first slash. Of maps only code is
 * answered, of command lines only the program, of the kernel's only how it is preempted.
 */
#ifndef TLSTAX_FACTS_H
#define TLSTAX_FACTS_H

#include "types.h"

/*
 * Names of the processes that are called so, or whose program is; or `by_group` of those that have
 * this word in the names of their control groups, in small letters or capitals: of these nothing of
 * the command line is told. -1: the reader is gone.
 */
int facts_put_processes(const char *name, bool by_group);

/* This host, process `pid` with its mappings, and those of the kernel's functions that are in
 * `symbols` (words). -1: there is no such process, or the reader is gone. */
int facts_put(int pid, const char *symbols);

#endif

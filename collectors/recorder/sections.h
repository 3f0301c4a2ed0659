/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of an ELF file that planning and naming need: all but its debugging sections. */
#ifndef TLSTAX_SECTIONS_H
#define TLSTAX_SECTIONS_H

/* Answer with the parts of an open file. -1: the reader is gone. */
int sections_put(int fd);

#endif

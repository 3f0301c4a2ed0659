/* SPDX-License-Identifier: GPL-2.0-only */
/* What an ELF file says of itself, in a file or at an address of /proc/PID/mem. */
#ifndef TLSTAX_BUILD_ID_H
#define TLSTAX_BUILD_ID_H

#include "types.h"

enum { BUILD_ID_MOST = 32 };

/* The GNU build-id of the file that begins at `start`: bytes in `id`, how many; 0: it has none. */
u32 build_id_of(int fd, u64 start, u8 id[BUILD_ID_MOST]);

/* The address that the file gives to the code at `file_offset`; false: no code is there. */
bool code_address_of(int fd, u64 start, u64 file_offset, u64 *address);

#endif

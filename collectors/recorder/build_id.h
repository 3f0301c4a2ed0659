/* SPDX-License-Identifier: GPL-2.0-only */
/* The GNU build-id of an open ELF file: bytes in `id`, how many; 0: it has none. */
#ifndef TLSTAX_BUILD_ID_H
#define TLSTAX_BUILD_ID_H

#include "types.h"

enum { BUILD_ID_MOST = 32 };

u32 build_id_of(int fd, u8 id[BUILD_ID_MOST]);

#endif

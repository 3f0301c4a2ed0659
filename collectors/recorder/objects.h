/* SPDX-License-Identifier: GPL-2.0-only */
/* The compiled BPF objects, which are part of the executable. NULL: no memory. */
#ifndef TLSTAX_OBJECTS_H
#define TLSTAX_OBJECTS_H

#include "types.h"

const void *object_content(bool is_guarded, size_t *size);

/* The programs that count functions. */
const void *functions_content(size_t *size);

#endif

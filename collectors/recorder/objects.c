// SPDX-License-Identifier: GPL-2.0-only
#include "objects.h"

/* Aligned as libelf wants a file in memory. */
#define EMBED(name, path)                                \
	__asm__(".section .rodata\n"                     \
		".balign 16\n" #name ":\n"               \
		".incbin \"" path "\"\n" #name "_end:\n" \
		".byte 0\n"                              \
		".previous\n");                          \
	extern const char name[], name##_end[]

#ifndef OBJECTS /* the folder of the objects for the architecture of this build */
#define OBJECTS "probes/bpf/"
#endif

EMBED(ledger_object, OBJECTS "ledger.bpf.o");
EMBED(guarded_object, OBJECTS "ledger_guarded.bpf.o");
EMBED(functions_object, OBJECTS "functions.bpf.o");

const void *object_content(bool is_guarded, size_t *size)
{
	if (is_guarded) {
		*size = (size_t)(guarded_object_end - guarded_object);
		return guarded_object;
	}
	*size = (size_t)(ledger_object_end - ledger_object);
	return ledger_object;
}

const void *functions_content(size_t *size)
{
	*size = (size_t)(functions_object_end - functions_object);
	return functions_object;
}

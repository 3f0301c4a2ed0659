// SPDX-License-Identifier: GPL-2.0-only
#include "objects.h"

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define EMBED(name, path)                                \
	__asm__(".section .rodata\n" #name ":\n"         \
		".incbin \"" path "\"\n" #name "_end:\n" \
		".byte 0\n"                              \
		".previous\n");                          \
	extern const char name[], name##_end[]

/* The folder of the objects for the machine of this build. */
#ifdef __aarch64__
#define OBJECTS "probes/bpf/arm64/"
#else
#define OBJECTS "probes/bpf/"
#endif

EMBED(ledger_object, OBJECTS "ledger.bpf.o.gz");
EMBED(guarded_object, OBJECTS "ledger_guarded.bpf.o.gz");
EMBED(functions_object, OBJECTS "functions.bpf.o.gz");

/* Files of gzip: a quarter of their size. */
static struct object {
	const char *packed, *end;
	void *content; /* once it has been asked for */
	u32 length;
} objects[] = {
	{ledger_object, ledger_object_end, NULL, 0},
	{guarded_object, guarded_object_end, NULL, 0},
	{functions_object, functions_object_end, NULL, 0},
};

static const void *unpacked(struct object *object, size_t *size)
{
	z_stream stream = {.next_in = (Bytef *)(uintptr_t)object->packed,
			   .avail_in = (uInt)(object->end - object->packed)};
	int ended;

	*size = 0;
	if (!object->content) {
		/* The last field of the format (RFC 1952). */
		memcpy(&object->length, object->end - sizeof(u32), sizeof(u32));
		object->length = le32toh(object->length);
		stream.next_out = malloc(object->length);
		stream.avail_out = object->length;
		object->content = stream.next_out;
		ended = Z_MEM_ERROR;
		if (object->content && inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK) {
			ended = inflate(&stream, Z_FINISH);
			inflateEnd(&stream);
		}
		if (ended != Z_STREAM_END) {
			free(object->content);
			object->content = NULL;
			return NULL;
		}
	}
	*size = object->length;
	return object->content;
}

const void *object_content(bool is_guarded, size_t *size)
{
	return unpacked(&objects[is_guarded], size);
}

const void *functions_content(size_t *size)
{
	return unpacked(&objects[2], size);
}

// SPDX-License-Identifier: GPL-2.0-only
#include "build_id.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

enum { NOTES_MOST = 65536, SEGMENTS_MOST = 64 };

static u32 in_notes(const u8 *notes, size_t length, u8 *id)
{
	Elf64_Nhdr head;
	size_t at = 0;

	while (length - at >= sizeof(head)) {
		memcpy(&head, notes + at, sizeof(head));
		size_t name = at + sizeof(head);
		size_t content = name + ((size_t)head.n_namesz + 3) / 4 * 4;
		size_t next = content + ((size_t)head.n_descsz + 3) / 4 * 4;
		if (content > length || head.n_descsz > length - content)
			return 0;
		if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
		    !memcmp(notes + name, "GNU", 4) && head.n_descsz <= BUILD_ID_MOST) {
			memcpy(id, notes + content, head.n_descsz);
			return head.n_descsz;
		}
		if (next > length)
			return 0;
		at = next;
	}
	return 0;
}

u32 build_id_of(int fd, u8 id[BUILD_ID_MOST])
{
	static u8 notes[NOTES_MOST];
	Elf64_Ehdr head;
	Elf64_Phdr segment;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64)
		return 0;
	for (u32 i = 0; i < head.e_phnum && i < SEGMENTS_MOST; i++) {
		off_t place = (off_t)(head.e_phoff + (u64)i * head.e_phentsize);
		if (pread(fd, &segment, sizeof(segment), place) != sizeof(segment))
			return 0;
		if (segment.p_type != PT_NOTE)
			continue;
		size_t length = segment.p_filesz < NOTES_MOST ? segment.p_filesz : NOTES_MOST;
		ssize_t got = pread(fd, notes, length, (off_t)segment.p_offset);
		u32 bytes = got > 0 ? in_notes(notes, (size_t)got, id) : 0;
		if (bytes)
			return bytes;
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "build_id.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

enum { NOTES_MOST = 65536, SEGMENTS_MOST = 64, PAGE_BYTES = 4096 };

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

/* The program header `number` of the file at `start`; false: there is none. */
static bool read_segment(int fd, u64 start, u32 number, Elf64_Phdr *segment)
{
	Elf64_Ehdr head;

	if (pread(fd, &head, sizeof(head), (off_t)start) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    number >= head.e_phnum || number >= SEGMENTS_MOST)
		return false;
	u64 place = start + head.e_phoff + (u64)number * head.e_phentsize;
	return pread(fd, segment, sizeof(*segment), (off_t)place) == sizeof(*segment);
}

u32 build_id_of(int fd, u64 start, u8 id[BUILD_ID_MOST])
{
	static u8 notes[NOTES_MOST];
	Elf64_Phdr segment;

	for (u32 i = 0; read_segment(fd, start, i, &segment); i++) {
		if (segment.p_type != PT_NOTE)
			continue;
		size_t length = segment.p_filesz < NOTES_MOST ? segment.p_filesz : NOTES_MOST;
		ssize_t got = pread(fd, notes, length, (off_t)(start + segment.p_offset));
		u32 bytes = got > 0 ? in_notes(notes, (size_t)got, id) : 0;
		if (bytes)
			return bytes;
	}
	return 0;
}

bool code_address_of(int fd, u64 start, u64 file_offset, u64 *address)
{
	Elf64_Phdr segment;

	for (u32 i = 0; read_segment(fd, start, i, &segment); i++) {
		u64 first = segment.p_offset & -(u64)PAGE_BYTES;
		if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) || file_offset < first ||
		    file_offset - first >= segment.p_filesz + (segment.p_offset - first))
			continue;
		*address = file_offset - segment.p_offset + segment.p_vaddr;
		return true;
	}
	return false;
}

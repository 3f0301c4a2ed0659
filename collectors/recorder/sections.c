// SPDX-License-Identifier: GPL-2.0-only
#include "sections.h"

#include <elf.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answers.h"
#include "stream.h"

enum { PART_MOST = 1 << 15, NAME_MOST = 32 };

static struct {
	int fd;
	u64 size, left; /* of the file; that may still be sent: a file may name a part many times */
} source;

static int put_range(u64 offset, u64 bytes)
{
	static u8 part[PART_MOST];

	if (offset >= source.size)
		return 0;
	if (bytes > source.size - offset)
		bytes = source.size - offset;
	if (bytes > source.left)
		bytes = source.left;
	source.left -= bytes;
	while (bytes) {
		struct stream_part head = {.offset = offset};
		ssize_t got = pread(source.fd, part, bytes < PART_MOST ? bytes : PART_MOST,
				    (off_t)offset);
		if (got <= 0)
			return 0;
		answer_begin(STREAM_PART);
		answer_add(&head, sizeof(head));
		answer_add(part, (size_t)got);
		if (answer_send())
			return -1;
		offset += (u64)got;
		bytes -= (u64)got;
	}
	return 0;
}

static bool is_debugging(const Elf64_Ehdr *head, const Elf64_Shdr *section)
{
	static const char *const beginnings[] = {".debug", ".zdebug", ".gdb_index", ".gnu.debuglto",
						 ".rela.debug"};
	char name[NAME_MOST] = "";
	Elf64_Shdr names;

	if (section->sh_flags & SHF_ALLOC || head->e_shstrndx >= head->e_shnum ||
	    pread(source.fd, &names, sizeof(names),
		  (off_t)(head->e_shoff + (u64)head->e_shstrndx * sizeof(names))) != sizeof(names))
		return false;
	(void)!pread(source.fd, name, sizeof(name) - 1,
		     (off_t)(names.sh_offset + section->sh_name));
	for (u32 i = 0; i < COUNT(beginnings); i++)
		if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

static int put_sections(const Elf64_Ehdr *head)
{
	Elf64_Shdr section;

	for (u32 i = 0; i < head->e_shnum; i++) {
		off_t place = (off_t)(head->e_shoff + (u64)i * sizeof(section));
		if (pread(source.fd, &section, sizeof(section), place) != sizeof(section))
			return 0;
		if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS ||
		    is_debugging(head, &section))
			continue;
		if (put_range(section.sh_offset, section.sh_size))
			return -1;
	}
	return 0;
}

/* What is loaded into memory, of a file whose table of sections was removed. */
static int put_segments(const Elf64_Ehdr *head)
{
	Elf64_Phdr segment;

	for (u32 i = 0; i < head->e_phnum; i++) {
		off_t place = (off_t)(head->e_phoff + (u64)i * sizeof(segment));
		if (pread(source.fd, &segment, sizeof(segment), place) != sizeof(segment))
			return 0;
		if (segment.p_type == PT_LOAD && put_range(segment.p_offset, segment.p_filesz))
			return -1;
	}
	return 0;
}

int sections_put(int fd)
{
	struct stream_file answer;
	struct stat found;
	Elf64_Ehdr head;

	if (fstat(fd, &found) || !S_ISREG(found.st_mode))
		return 0;
	answer.size_bytes = source.size = (u64)found.st_size;
	source.left = 2 * source.size;
	source.fd = fd;
	answer_begin(STREAM_FILE);
	answer_add(&answer, sizeof(answer));
	if (answer_send())
		return -1;
	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(Elf64_Phdr))
		return 0;
	if (put_range(0, sizeof(head)) ||
	    put_range(head.e_phoff, (u64)head.e_phnum * sizeof(Elf64_Phdr)))
		return -1;
	if (!head.e_shnum || head.e_shentsize != sizeof(Elf64_Shdr))
		return put_segments(&head);
	if (put_range(head.e_shoff, (u64)head.e_shnum * sizeof(Elf64_Shdr)))
		return -1;
	return put_sections(&head);
}

// SPDX-License-Identifier: GPL-2.0-only
#include "kernel_lookup.h"

#include <bpf/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the program is asked, and what it answers: "name+0x1a/0x30", of a module with its name. */
static struct lookup {
	u64 address;
	char text[256];
} * lookup;
static int program = -1;
static const char format[8] = "%pS";

/* Format the symbol of the address that stands in one map, as another map says. */
static int load(int lookups, int formats)
{
	const struct bpf_insn code[] = {
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = BPF_REG_6,
		 .src_reg = BPF_PSEUDO_MAP_VALUE,
		 .imm = lookups},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_6},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K,
		 .dst_reg = BPF_REG_1,
		 .imm = offsetof(struct lookup, text)},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K,
		 .dst_reg = BPF_REG_2,
		 .imm = sizeof(lookup->text)},
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = BPF_REG_3,
		 .src_reg = BPF_PSEUDO_MAP_VALUE,
		 .imm = formats},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_4, .src_reg = BPF_REG_6},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K,
		 .dst_reg = BPF_REG_5,
		 .imm = sizeof(lookup->address)},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_snprintf},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = BPF_F_SLEEPABLE);

	return bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "tlstax_name", "GPL", code, COUNT(code),
			     &options);
}

void kernel_lookup_prepare(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, shared, .map_flags = BPF_F_MMAPABLE);
	LIBBPF_OPTS(bpf_map_create_opts, constant, .map_flags = BPF_F_RDONLY_PROG);

	if (program >= 0)
		return;
	int lookups = bpf_map_create(BPF_MAP_TYPE_ARRAY, "tlstax_name", sizeof(u32),
				     sizeof(*lookup), 1, &shared);
	int formats = bpf_map_create(BPF_MAP_TYPE_ARRAY, "tlstax_name", sizeof(u32), sizeof(format),
				     1, &constant);
	lookup = MAP_FAILED;
	if (lookups >= 0)
		lookup =
			mmap(NULL, sizeof(*lookup), PROT_READ | PROT_WRITE, MAP_SHARED, lookups, 0);
	if (lookup != MAP_FAILED && formats >= 0 &&
	    !bpf_map_update_elem(formats, &(u32){0}, format, 0) && !bpf_map_freeze(formats))
		program = load(lookups, formats);
	if (lookups >= 0) /* memory and program hold them */
		close(lookups);
	if (formats >= 0)
		close(formats);
}

bool kernel_lookup_works(void)
{
	return program >= 0;
}

bool kernel_lookup(u64 address, struct stream_kernel_name *name)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	lookup->address = address;
	lookup->text[0] = 0;
	if (bpf_prog_test_run_opts(program, &options))
		return false;
	lookup->text[sizeof(lookup->text) - 1] = 0;
	size_t length = strcspn(lookup->text, "+");
	if (!lookup->text[length]) /* a number: it is of no function */
		return false;
	name->offset_bytes = strtoull(lookup->text + length + 1, NULL, 16);
	if (length >= sizeof(name->name))
		length = sizeof(name->name) - 1;
	memcpy(name->name, lookup->text, length);
	name->name[length] = 0;
	name->address = address;
	return true;
}

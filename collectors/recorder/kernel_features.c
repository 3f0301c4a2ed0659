// SPDX-License-Identifier: GPL-2.0-only
#include "kernel_features.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <link.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure.h"
#include "proc.h"

enum { TRIAL_CALLS = 23 };

/* union bpf_attr as far as a uprobe_multi link needs it. */
struct multi_link {
	u32 program, target, attach_type, flags;
	u64 path, offsets, reference_counters, cookies;
	u32 count, multi_flags, pid, padding;
};

int open_multi_link(int program, const char *path, const u64 *offsets, const u64 *cookies,
		    u32 count, int pid, bool is_return)
{
	struct multi_link link = {
		.program = (u32)program,
		.attach_type = ATTACH_UPROBE_MULTI,
		.path = (u64)(unsigned long)path,
		.offsets = (u64)(unsigned long)offsets,
		.cookies = (u64)(unsigned long)cookies,
		.count = count,
		.multi_flags = is_return,
		.pid = (u32)pid,
	};
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof(link));

	return fd < 0 ? -errno : (int)fd;
}

/* A number that stands behind a text in a file of a kind of perf event, below 0: there is none. */
static int pmu_number(const char *path, const char *before)
{
	char text[64];
	int number;

	if (read_text(path, text, sizeof(text)) <= 0 || strncmp(text, before, strlen(before)) != 0)
		return -ENOTSUP;
	return sscanf(text + strlen(before), "%d", &number) == 1 ? number : -ENOTSUP;
}

int open_event_link(int program, const char *path, u64 offset, u64 cookie, int pid, bool is_return)
{
	static int type, return_bit;

	if (!type) {
		type = pmu_number("/sys/bus/event_source/devices/uprobe/type", "");
		return_bit = pmu_number("/sys/bus/event_source/devices/uprobe/format/retprobe",
					"config:");
	}
	if (type < 0 || return_bit < 0)
		return -ENOTSUP;
	struct perf_event_attr attributes = {
		.type = (u32)type,
		.size = sizeof(attributes),
		.config = is_return ? 1ULL << return_bit : 0,
		.config1 = (u64)(unsigned long)path,
		.config2 = offset,
	};
	int event =
		(int)syscall(SYS_perf_event_open, &attributes, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	LIBBPF_OPTS(bpf_link_create_opts, options, .perf_event.bpf_cookie = cookie);
	int link = bpf_link_create(program, event, BPF_PERF_EVENT, &options);
	int error = link < 0 ? link : ioctl(event, PERF_EVENT_IOC_ENABLE, 0) ? -errno : 0;
	close(event); /* the link holds it */
	if (error && link >= 0)
		close(link);
	return error ? error : link;
}

/* ---- the trial of uprobe_multi ---- */

__attribute__((noinline, used)) static void probed_function(void)
{
	__asm__ volatile("nop" ::: "memory");
}

static void *call_probed(void *unused)
{
	(void)unused;
	for (int i = 0; i < TRIAL_CALLS; i++)
		probed_function();
	return NULL;
}

/* Where a function of this executable is in its file. */
static u64 file_offset_of(u64 address)
{
	const ElfW(Phdr) *segments = (const void *)getauxval(AT_PHDR);
	unsigned long count = getauxval(AT_PHNUM);

	for (unsigned long i = 0; i < count; i++) /* where it was loaded, if that may be anywhere */
		if (segments[i].p_type == PT_PHDR)
			address -= (u64)(unsigned long)segments - segments[i].p_vaddr;
	for (unsigned long i = 0; i < count; i++)
		if (segments[i].p_type == PT_LOAD && address >= segments[i].p_vaddr &&
		    address < segments[i].p_vaddr + segments[i].p_memsz)
			return address - segments[i].p_vaddr + segments[i].p_offset;
	return 0;
}

int load_counter(int map, u32 attach_type)
{
	const struct bpf_insn code[] = {
		{.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .off = -4},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = BPF_REG_1,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map},
		{0},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 2},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
		{.code = BPF_STX | BPF_ATOMIC | BPF_DW,
		 .dst_reg = BPF_REG_0,
		 .src_reg = BPF_REG_1,
		 .imm = BPF_ADD},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options,
		    .expected_attach_type = (enum bpf_attach_type)attach_type);

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "tlstax_trial", "GPL", code, COUNT(code),
			     &options);
}

/*
 * Kernels 6.6 to 6.9 filter such links by thread: a second thread is then never seen, which only
 * counting shows.
 */
bool features_try_multi(void)
{
	u64 offset = file_offset_of((u64)(unsigned long)probed_function), cookie = 0, hits = 0;
	int map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "tlstax_trial", 4, 8, 1, NULL);
	int program = map < 0 ? -1 : load_counter(map, ATTACH_UPROBE_MULTI);
	int link = -1;
	pthread_t thread;

	if (program >= 0 && offset)
		link = open_multi_link(program, "/proc/self/exe", &offset, &cookie, 1, getpid(),
				       false);
	if (link >= 0 && !pthread_create(&thread, NULL, call_probed, NULL)) {
		pthread_join(thread, NULL);
		bpf_map_lookup_elem(map, &(u32){0}, &hits);
	}
	if (link >= 0)
		close(link);
	if (program >= 0)
		close(program);
	if (map >= 0)
		close(map);
	return hits > 0;
}

/* ---- types ---- */

static struct btf *types;

const struct btf *kernel_types(void)
{
	if (!types)
		types = btf__load_vmlinux_btf();
	return types;
}

void kernel_types_forget(void)
{
	btf__free(types);
	types = NULL;
}

/* Arguments that a tracepoint passes to a program, 0: the kernel does not have it. */
static u32 argument_count(const struct btf *btf, const char *tracepoint)
{
	char name[64];

	snprintf(name, sizeof(name), "btf_trace_%s", tracepoint);
	s32 number = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
	while (number > 0) {
		const struct btf_type *type = btf__type_by_id(btf, (u32)number);
		if (!type)
			return 0;
		if (btf_is_func_proto(type)) /* the first argument is the tracepoint's own data */
			return btf_vlen(type) ? btf_vlen(type) - 1U : 0;
		if (!btf_is_typedef(type) && !btf_is_ptr(type))
			return 0;
		number = (s32)type->type;
	}
	return 0;
}

int features_find(struct features *features)
{
	const struct btf *btf = kernel_types();
	struct rlimit space;

	/* libbpf says "No such process" then: it looks for the types elsewhere, too. */
	if (!btf && !getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY)
		return fail(EXIT_CODE_HOST,
			    "the kernel's types cannot be read, perhaps because the address space "
			    "is limited to %llu KB: lift the limit (ulimit -v unlimited)",
			    (u64)space.rlim_cur >> 10);
	if (!btf)
		return fail(
			EXIT_CODE_HOST,
			"this kernel has no types (BTF, CONFIG_DEBUG_INFO_BTF), or they cannot be "
			"read: %s",
			strerror(errno));
	features->switch_has_state = argument_count(btf, "sched_switch") >= 4;
	features->sockets = sockets_source();
	kernel_types_forget();
	features->has_multi = features_try_multi();
	return 0;
}

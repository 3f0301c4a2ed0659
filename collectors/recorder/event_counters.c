// SPDX-License-Identifier: GPL-2.0-only
#include "event_counters.h"

#include <bpf/bpf.h>
#include <string.h>
#include <unistd.h>

enum { CPUS_MOST = 4096 };

int event_map(u32 kinds)
{
	return bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, "tlstax_rates", 4, 8, 2 * kinds, NULL);
}

/* A program that adds 1 to the event's cell. It is a tracepoint's, or, where `function` is one, at
 * its returns. */
static int load_counter(int map, u32 kind, int pid, u32 function)
{
	const int cell = (int)(2 * kind);
	const struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_6, .imm = cell + 1},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid},
		{.code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 1, .imm = pid},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_6, .imm = cell},
		{.code = BPF_STX | BPF_MEM | BPF_W,
		 .dst_reg = BPF_REG_10,
		 .src_reg = BPF_REG_6,
		 .off = -4},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = BPF_REG_1,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map},
		{0},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 3},
		{.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_0},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
		{.code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_1},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options,
		    .expected_attach_type = function ? BPF_TRACE_FEXIT : 0,
		    .attach_btf_id = function);

	return bpf_prog_load(function ? BPF_PROG_TYPE_TRACING : BPF_PROG_TYPE_RAW_TRACEPOINT,
			     "tlstax_rate", "GPL", code, COUNT(code), &options);
}

static int attach(int program, const char *tracepoint)
{
	int link = program < 0 ? program : bpf_raw_tracepoint_open(tracepoint, program);

	if (program >= 0)
		close(program);
	return link;
}

int count_tracepoint(int map, u32 kind, int pid, const char *tracepoint)
{
	return attach(load_counter(map, kind, pid, 0), tracepoint);
}

int count_returns(int map, u32 kind, int pid, u32 function)
{
	return attach(load_counter(map, kind, pid, function), NULL);
}

u64 events_counted(int map, u32 kind, bool of_others)
{
	static u64 values[CPUS_MOST];
	u32 cell = 2 * kind + !of_others;
	u64 sum = 0;

	memset(values, 0, sizeof(values));
	bpf_map_lookup_elem(map, &cell, values);
	for (u32 i = 0; i < CPUS_MOST; i++)
		sum += values[i];
	return sum;
}

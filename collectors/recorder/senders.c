// SPDX-License-Identifier: GPL-2.0-only
#include "senders.h"

#include <bpf/bpf.h>
#include <unistd.h>

enum { PROCESSES_MOST = 1024 };

static int map = -1, attached = -1;

/* It adds 1 to the number of the process that sends. */
static int load_program(void)
{
	const struct bpf_insn code[] = {
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid},
		{.code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32},
		{.code = BPF_STX | BPF_MEM | BPF_W,
		 .dst_reg = BPF_REG_10,
		 .src_reg = BPF_REG_0,
		 .off = -4},
		{.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -16, .imm = 1},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = BPF_REG_1,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map},
		{0},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 4},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
		{.code = BPF_STX | BPF_ATOMIC | BPF_DW,
		 .dst_reg = BPF_REG_0,
		 .src_reg = BPF_REG_1,
		 .imm = BPF_ADD},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_3, .imm = -16},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_4, .imm = BPF_NOEXIST},
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = BPF_REG_1,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map},
		{0},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_update_elem},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "tlstax_senders", "GPL", code,
			     COUNT(code), NULL);
}

bool senders_begin(void)
{
	map = bpf_map_create(BPF_MAP_TYPE_HASH, "tlstax_senders", 4, 8, PROCESSES_MOST, NULL);
	int program = map < 0 ? -1 : load_program();

	attached = program < 0 ? -1 : bpf_raw_tracepoint_open("sock_send_length", program);
	if (program >= 0)
		close(program);
	if (attached < 0)
		senders_end();
	return attached >= 0;
}

void senders_end(void)
{
	if (attached >= 0)
		close(attached);
	if (map >= 0)
		close(map);
	attached = map = -1;
}

u64 senders_count(int pid)
{
	u64 count = 0;

	bpf_map_lookup_elem(map, &pid, &count);
	return count;
}

u64 senders_count_others(int without_pid)
{
	u64 sum = 0;
	int pid, *before = NULL;

	for (; !bpf_map_get_next_key(map, before, &pid); before = &pid)
		sum += pid == without_pid ? 0 : senders_count(pid);
	return sum;
}

u32 senders_find(int without_pid, u64 least, struct sender senders[SENDERS_MOST])
{
	u32 count = 0;
	int pid, *before = NULL;

	for (; count < SENDERS_MOST && !bpf_map_get_next_key(map, before, &pid); before = &pid) {
		u64 sends = senders_count(pid);
		u64 cpu_ns = clock_ns(process_clock(pid));
		if (pid != without_pid && sends >= least && cpu_ns)
			senders[count++] = (struct sender){pid, sends, cpu_ns};
	}
	return count;
}

void senders_read(struct sender *senders, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		senders[i].sends = senders_count(senders[i].pid);
		senders[i].cpu_ns = clock_ns(process_clock(senders[i].pid));
	}
}

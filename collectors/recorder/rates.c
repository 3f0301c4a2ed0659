// SPDX-License-Identifier: GPL-2.0-only
#include "rates.h"

#include <bpf/bpf.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"

#define COUNTED_NS (100 * NS_PER_MS)

enum event { EVENT_SWITCH, EVENT_RECEIVE, EVENT_SEND, EVENTS };
enum { CPUS_MOST = 4096, CELLS = 2 * EVENTS }; /* of all other processes, of the target */

static const char *const tracepoints[EVENTS] = {"sched_switch", "sock_recv_length",
						"sock_send_length"};

/* A program that adds 1 to the event's cell: the current thread is the one that leaves the CPU,
 * receives or sends. */
static int load_counter(int map, enum event event, int pid)
{
	const struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_6, .imm = 2 * event + 1},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid},
		{.code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 1, .imm = pid},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_6, .imm = 2 * event},
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

	return bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "tlstax_rate", "GPL", code, COUNT(code),
			     NULL);
}

/* The sum of a cell over all CPUs. */
static double count_of(int map, u32 cell)
{
	static u64 values[CPUS_MOST];
	u64 sum = 0;

	memset(values, 0, sizeof(values));
	bpf_map_lookup_elem(map, &cell, values);
	for (u32 i = 0; i < CPUS_MOST; i++)
		sum += values[i];
	return (double)sum;
}

static bool attach_counters(int map, int pid, int links[EVENTS])
{
	for (int event = 0; event < EVENTS; event++) {
		int program = load_counter(map, (enum event)event, pid);
		links[event] =
			program < 0 ? -1 : bpf_raw_tracepoint_open(tracepoints[event], program);
		if (program >= 0)
			close(program);
		if (links[event] < 0)
			return false;
	}
	return true;
}

bool rates_count(int pid, struct rates *rates)
{
	int map = bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, "tlstax_rates", 4, 8, CELLS, NULL);
	int links[EVENTS] = {-1, -1, -1};
	struct timespec pause = {.tv_nsec = (long)COUNTED_NS};
	clockid_t clock = process_clock(pid);
	bool is_counted = map >= 0 && attach_counters(map, pid, links);
	u64 before_ns = monotonic_ns(), used_ns = clock_ns(clock);

	if (is_counted)
		nanosleep(&pause, NULL);
	for (int event = 0; event < EVENTS; event++)
		if (links[event] >= 0)
			close(links[event]);
	if (is_counted) {
		double span_ns = (double)(monotonic_ns() - before_ns);
		double second = (double)NS_PER_S / span_ns;
		*rates = (struct rates){
			.cpus = (double)(clock_ns(clock) - used_ns) / span_ns,
			.own_switches = count_of(map, 2 * EVENT_SWITCH + 1) * second,
			.other_switches = count_of(map, 2 * EVENT_SWITCH) * second,
			.own_receives = count_of(map, 2 * EVENT_RECEIVE + 1) * second,
			.own_sends = count_of(map, 2 * EVENT_SEND + 1) * second,
			.other_messages =
				(count_of(map, 2 * EVENT_RECEIVE) + count_of(map, 2 * EVENT_SEND)) *
				second,
		};
	}
	if (map >= 0)
		close(map);
	return is_counted;
}

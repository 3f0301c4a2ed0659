// SPDX-License-Identifier: GPL-2.0-only
#include "call_price.h"

#include <bpf/bpf.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCHES = 41, RECEIVES = 24, TIMES_MOST = 3 /* the run time: more was disturbed */ };

static struct call_price price = {.call_ns = CALL_NS, .idle_ns = IDLE_NS};

const struct call_price *call_price(void)
{
	return &price;
}

/* Of a receive without the program and with it, and its run time. No sense: what is known. */
static struct call_price price_of(double without_ns, double with_ns, double timed_ns, double run_ns)
{
	double idle_ns = with_ns - without_ns, most_ns = TIMES_MOST * run_ns;

	if (without_ns <= 0 || run_ns <= 0 || idle_ns < run_ns || idle_ns > most_ns ||
	    timed_ns - with_ns > most_ns)
		return (struct call_price){.call_ns = CALL_NS, .idle_ns = IDLE_NS};
	return (struct call_price){
		.call_ns = idle_ns - run_ns,
		.idle_ns = idle_ns,
		.timed_ns = timed_ns > with_ns ? timed_ns - with_ns : 0,
		.is_measured = true,
	};
}

static int by_length(const void *one, const void *other)
{
	u64 a = *(const u64 *)one, b = *(const u64 *)other;

	return a < b ? -1 : a > b;
}

/* Wall time of a receive that finds nothing, median of the batches; 0: it fails. */
static double receive_ns(int socket)
{
	u64 lengths_ns[BATCHES];
	char byte = 0;

	for (int batch = 0; batch < BATCHES; batch++) {
		u64 before_ns = monotonic_ns();
		for (int i = 0; i < RECEIVES; i++)
			if (recv(socket, &byte, 1, MSG_DONTWAIT) >= 0)
				return 0;
		lengths_ns[batch] = monotonic_ns() - before_ns;
	}
	qsort(lengths_ns, BATCHES, sizeof(lengths_ns[0]), by_length);
	return (double)lengths_ns[BATCHES / 2] / RECEIVES;
}

/* It does what ours do at the events of others: look whose it is, and return. */
static int load_idle(void)
{
	const struct bpf_insn code[] = {
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid},
		{.code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "tlstax_idle", "GPL", code, COUNT(code),
			     NULL);
}

/* A receive while the kernel times the program, and its mean run time; 0: it fails. */
static double timed_receive_ns(int program, int socket, double *run_ns)
{
	struct bpf_prog_info before = {0}, after = {0};
	u32 length = sizeof(before);
	int statistics = bpf_enable_stats(BPF_STATS_RUN_TIME);

	bpf_obj_get_info_by_fd(program, &before, &length);
	double timed_ns = receive_ns(socket);
	length = sizeof(after);
	bpf_obj_get_info_by_fd(program, &after, &length);
	if (statistics >= 0)
		close(statistics);
	u64 count = after.run_cnt - before.run_cnt;
	*run_ns = count ? (double)(after.run_time_ns - before.run_time_ns) / (double)count : 0;
	return timed_ns;
}

static void measure(int socket)
{
	receive_ns(socket); /* the first are slower */
	double without_ns = receive_ns(socket);
	int program = load_idle();
	int link = program < 0 ? -1 : bpf_raw_tracepoint_open("sock_recv_length", program);
	if (link >= 0) {
		double with_ns = receive_ns(socket), run_ns;
		double timed_ns = timed_receive_ns(program, socket, &run_ns);
		price = price_of(without_ns, with_ns, timed_ns, run_ns);
		close(link);
	}
	if (program >= 0)
		close(program);
}

void call_price_measure(void)
{
	cpu_set_t before, here;

	if (price.is_measured)
		return;
	int nobody = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (nobody < 0)
		return;
	CPU_ZERO(&here);
	CPU_SET((size_t)sched_getcpu(), &here);
	if (!sched_getaffinity(0, sizeof(before), &before) &&
	    !sched_setaffinity(0, sizeof(here), &here)) {
		measure(nobody);
		sched_setaffinity(0, sizeof(before), &before);
	}
	close(nobody);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * ledger - every nanosecond of every thread of one process, by phase and state.
 *
 * Question: where does the time of a TLS server go: handshake, records, commands, or waiting?
 * Emits: ns per (thread, phase, state); latency histograms per phase; one record per handshake;
 *        phase-tagged CPU samples and off-CPU stacks; hit and loss counters.
 * Attaches: uprobes and uretprobes chosen by collectors/placement/placement.py; tp_btf
 *           sched_switch, sched_wakeup, sched_process_fork, sched_process_exit and
 *           sched_process_exec; tp_btf sock_recv_length and sock_send_length, or else fexit of
 *           inet_recvmsg, inet_sendmsg, and of inet6_ and unix_stream_ alike; cpu-clock perf
 *           events; a task iterator for the threads that exist already, or found no room before.
 * Needs: BTF, ring buffer, task storage and bpf_task_pt_regs (kernel 5.15 or a backport);
 *        CAP_BPF and CAP_PERFMON, or root.
 * Blind to: time inside a phase whose entry probe was dropped (counted as uncertain); user stacks
 *           through code with neither unwind tables nor frame pointers; what interrupts do in the
 *           thread's time.
 * Example: tlstax attach --name mariadbd --for 30s -o server.tlstax
 *          tlstax report server.tlstax
 */
#include "boundaries.bpf.h"
#include "lifecycle.bpf.h"
#include "samples.bpf.h"
#include "scheduler.bpf.h"
#include "socket_events.bpf.h"

char LICENSE[] SEC("license") = "GPL";

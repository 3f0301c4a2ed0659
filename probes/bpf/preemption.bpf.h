/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Uprobe programs that cannot be preempted, in the object that is built with -DGUARDED. On kernels
 * that give each program one private stack for each CPU and can be preempted, two threads must not
 * run one program on one CPU at a time (collectors/preflight, private-stacks). Nothing is kept on
 * the program's stack before `begin` and after `end`. The functions exist since Linux 6.10.
 */
#ifndef TLSTAX_PREEMPTION_BPF_H
#define TLSTAX_PREEMPTION_BPF_H

#ifdef GUARDED
extern void bpf_preempt_disable(void) __ksym;
extern void bpf_preempt_enable(void) __ksym;
#define BEGIN_UNPREEMPTED() bpf_preempt_disable()
#define END_UNPREEMPTED() bpf_preempt_enable()
#else
#define BEGIN_UNPREEMPTED() (void)0
#define END_UNPREEMPTED() (void)0
#endif

#endif

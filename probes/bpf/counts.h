/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel counts of threads, process and CPUs, for closure: closure.bpf.h fills it. */
#ifndef TLSTAX_COUNTS_H
#define TLSTAX_COUNTS_H

/* What the kernel counted of a thread: see closure.bpf.h. */
struct thread_counts {
	u64 time_ns;	  /* when it was read; 0: never */
	u64 cpu_ns;	  /* by the scheduler */
	u64 wait_ns;	  /* for a CPU, by the scheduler */
	u64 switch_count; /* voluntary and involuntary */
	u64 seen_count;	  /* those that the ledger saw */
};

/* The same of the process, summed by one run of the iterator. */
struct process_counts {
	u64 thread_count;
	u64 account_count; /* threads that have an account */
	u64 switch_count;  /* of the threads that live */
	u64 ended_switch_count;
	u64 ended_before_count; /* the same when the iterator began: differs if a thread ended */
	u64 uncounted_ns; /* CPU time of running threads that the scheduler has not added yet */
	u64 has_wait;	  /* the kernel counts the time that threads wait for a CPU */
};

/* A CPU, as far as the target ran on it. A cache line each. */
struct cpu_counts {
	u64 clock_offset_ns; /* CLOCK_MONOTONIC less the clock that CPU times are taken with */
	u64 queue_offset_ns; /* and less the clock that waits for a CPU are taken with */
	u64 target_cpu_ns;   /* of the stays that have ended */
	u64 running_ns;	     /* of the stay that has not: from the iterator */
	u64 sample_count;    /* CPU samples in the target */
	u64 arrived_ns;	     /* when a thread of the target was last switched in here */
	u64 current;	     /* the thread of the target that was last switched in here, its task */
	u32 current_index;   /* and its slot */
	u32 event_count;     /* of the target that a program ran for here; goes on at 0 */
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stream: what the recorder writes and collectors/recording/stream reads.
 *
 * This header is the only definition. Python reads it (collectors/recording/stream/definition.py),
 * and docs/stream.md is made of it: each comment becomes the description of what it stands beside.
 * Numbers are little-endian, records are aligned to 8 bytes, times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef TLSTAX_STREAM_H
#define TLSTAX_STREAM_H

#include "counts.h"
#include "functions.h"
#include "stream_prices.h"

enum {
	STREAM_MAGIC = 0x78736c74, /* "tlsx" */
	STREAM_VERSION = 12,
	STREAM_FRAME_MOST = 65536, /* bytes behind the head of a frame */
	STREAM_SPANS_MOST = 512,   /* functions of roles in a plan */
	STREAM_TARGETS_MOST = 16,  /* processes that one recorder records */
};

/* What a frame holds. */
enum stream_type {
	STREAM_START = 1,	 /* struct stream_start: the recording */
	STREAM_PLAN = 2,	 /* a part of the plan file, as text */
	STREAM_MAPPING = 3,	 /* struct stream_mapping and a path: code mapped into the target */
	STREAM_SLOT = 4,	 /* struct stream_slot and its cells: accounts that changed */
	STREAM_CPU = 5,		 /* struct stream_cpu: CPUs that changed */
	STREAM_LATENCY = 6,	 /* struct stream_latency: buckets that changed */
	STREAM_HITS = 7,	 /* struct stream_hits: sites that changed */
	STREAM_PROGRAM = 8,	 /* struct stream_program: every BPF program */
	STREAM_STACK = 9,	 /* struct stream_stack and its addresses: stacks seen first */
	STREAM_SAMPLE = 10,	 /* struct stream_sample: CPU samples of the window */
	STREAM_WAIT = 11,	 /* struct stream_wait: walked waits of the window */
	STREAM_HANDSHAKE = 12,	 /* struct handshake of ledger.h: handshakes that ended */
	STREAM_WINDOW = 13,	 /* struct stream_window: a window ends; all before belongs to it */
	STREAM_KERNEL_NAME = 14, /* struct stream_kernel_name: a name of a kernel address */
	STREAM_ERROR = 15,	 /* struct stream_error: why the recording failed */
	STREAM_END = 16,	 /* struct stream_end: the recording ended in order */
	STREAM_QUOTA = 17,	 /* struct stream_quota: control groups whose counters changed */
	STREAM_BUDGET = 18,	 /* struct stream_budget: after a window, with a budget */
	STREAM_FUNCTION = 19,	 /* struct stream_function: of each function of the plan */
	STREAM_FUNCTION_SUM = 20,  /* struct stream_function_sum: sums that changed */
	STREAM_FUNCTION_TIME = 21, /* struct stream_function_time: buckets that changed */
	STREAM_FUNCTION_LOSS = 22, /* struct stream_function_loss: with functions, once a window */
	STREAM_HIT_PRICE = 23,	   /* struct stream_hit_price: when it was estimated (anew) */
	STREAM_WHOLE_PRICE = 24,   /* struct stream_whole_price: before the first window */
	STREAM_CHANGE = 25,	   /* struct stream_change and its values: accounts sent before */
	STREAM_FACT = 32,	   /* struct stream_fact, a name and a text: answers to --serve */
	STREAM_LINK = 33,	   /* struct stream_fact, a name and where that link leads to */
	STREAM_FILE = 34,	   /* struct stream_file: a mapped file, of which parts follow */
	STREAM_PART = 35,	   /* struct stream_part and the bytes there */
	STREAM_ANSWERED = 36,	   /* nothing: the answer is complete */
};

/* The head of every frame. */
struct stream_head {
	u32 magic;	  /* STREAM_MAGIC */
	u8 type;	  /* enum stream_type */
	u8 target;	  /* of the recorder's targets, from 0: whose recording this frame is of */
	u16 version;	  /* STREAM_VERSION */
	u32 length_bytes; /* of what follows the head; a multiple of 8, padded with zeros */
	u32 sequence;	  /* number of the frame among those of its target, from 0 */
	u32 crc32; /* of the head with this field 0, and of what follows it (as zlib's crc32) */
	u32 used_bytes; /* of what follows, without the padding */
};

/* The recording and its host. */
struct stream_start {
	u64 wall_ns; /* CLOCK_REALTIME at monotonic_ns */
	u64 monotonic_ns;
	u64 window_ns;	  /* asked length of a window */
	u64 start_cpu_ns; /* CPU time of the recorder until it was attached */
	u64 start_ticks;  /* of the target: when it started, in clock ticks since boot */
	u64 slots_bytes;  /* kernel memory of the accounts */
	u64 unwind_bytes; /* kernel memory of the unwind tables; 0: none are used */
	s32 pid;	  /* of the target */
	s32 own_pid;	  /* of the target in its own pid namespace */
	u32 sample_hz;
	u32 slots_count;   /* threads that can have an account at a time */
	u32 cpus_count;	   /* numbers that a CPU of the host can have */
	u32 online_count;  /* CPUs that were online */
	u32 multi;	   /* 1: uprobe_multi links; 0: a perf event for each probe */
	u32 socket_events; /* they replace the probes that the plan marks, or tell commands; 1: by
			      tracepoints; 2: by returns of the kernel's functions; 0: not used */
	u32 switch_has_state; /* 1: sched_switch passes the state of the thread that leaves */
	u16 network_bits;     /* of a client's IPv4 address in handshakes; 0: no address at all */
	u16 network6_bits;    /* of an IPv6 address */
	char level[16]; /* what is recorded: sample, signature, handshake, flow, command, record */
	char hostname[72];
	char kernel[72];
	char machine[16];
	char recorder[16]; /* version of the recorder */
	char cpu_model[64];
	char cpu_flags[2048]; /* features of the CPU, as the kernel lists them */
};

/* Code mapped into the target; its path follows. */
struct stream_mapping {
	u64 start; /* process address */
	u64 end;
	u64 file_offset;
	u64 inode;
	u32 device_major;
	u32 device_minor;
	u32 path_bytes; /* 0: mapped without a file */
	u32 build_id_bytes;
	u8 build_id[32];
	u32 has_table; /* 1: stacks are walked by its unwind table */
	u32 reserved;
};

/* A thread's account: totals since it began. Cells that did not change are left out. */
struct stream_slot {
	u32 index; /* of the slot; another thread may have it later */
	u32 tid;
	u32 status; /* enum thread_status of ledger.h */
	u32 role;   /* number of the capture's role */
	u32 state;  /* enum state of ledger.h, now */
	u32 owner;  /* enum phase of ledger.h, now */
	u32 healed_count;
	u32 span; /* 1 + number of the plan's span on the thread's stack; 0: none */
	u64 thread_start_ns;
	u64 first_ns; /* when it got its account */
	u64 last_ns;  /* everything up to here is charged */
	u64 uncertain_ns;
	s64 steal_ns;
	s64 handed_ns;
	struct thread_counts first_counts; /* by the kernel, when it got its account */
	struct thread_counts counts;	   /* by the kernel, when they were read last */
	char comm[16];
	u32 cells_count; /* struct stream_cell that follow */
	u32 reserved;
};

/* A cell of an account that changed. */
struct stream_cell {
	u64 index; /* below 128: 8 * phase + state, ns; from 128 on: phase, instances that ended */
	u64 value;
};

/*
 * The account that was sent last for a slot: where it is now, and cells that changed. The values of
 * these follow in their order.
 */
struct stream_change {
	u32 index;	 /* of the slot */
	u8 state;	 /* enum state of ledger.h, now */
	u8 owner;	 /* enum phase of ledger.h, now */
	u16 cells_count; /* values that follow */
	u64 last_ns;
	s64 steal_ns;
	s64 handed_ns;
	u64 cells[3]; /* bit n of all: a cell of struct stream_cell with index n changed */
};

/* A CPU since the programs were loaded. */
struct stream_cpu {
	u64 number;
	u64 target_cpu_ns; /* CPU time of the target on it, by the scheduler */
	u64 sample_count;
};

/* A bucket of a phase's latencies. */
struct stream_latency {
	u32 phase;
	u32 bucket;
	u64 count;
};

/* A site of the plan. */
struct stream_hits {
	u64 site;
	u64 count;
	u64 begun;  /* phases that its hits began */
	u64 healed; /* those of them whose end was not seen */
};

/* A BPF program. */
struct stream_program {
	char name[16];
	u64 run_ns; /* while the kernel's statistics were on */
	u64 run_count;
	u64 missed_count; /* runs that the kernel left out because one was active on the CPU */
};

/* A stack; its addresses follow, leaf first. */
struct stream_stack {
	u32 id;
	u32 depth;
};

/* CPU samples at one place. */
struct stream_sample {
	u32 phase;
	s32 syscall;	/* -1: in user mode */
	s32 user_stack; /* id of a stack; below 0: none */
	s32 kernel_stack;
	u64 user_ip; /* where the thread was, when its stack could not be kept */
	u64 kernel_ip;
	u64 count;
};

/* Waits at one place. */
struct stream_wait {
	u32 phase;
	u32 state;
	s32 syscall;
	s32 user_stack;
	s32 kernel_stack;
	u32 reserved;
	u64 count;
	u64 time_ns;
};

/* A window ends. Window 0 holds the totals at which the recording begins. */
struct stream_window {
	u64 number;
	u64 end_ns;	     /* it began where the one before ended */
	u64 read_ns;	     /* when the last account had been read */
	u64 executed_ns;     /* when the target executed another program; 0: it did not */
	u64 process_cpu_ns;  /* CPU clock of the target, or sums since; all bits set: it is gone */
	u64 has_counts;	     /* 1: the kernel's counts were read where this window ends: those of
				threads, of CPUs, and the next four; 0: they are those read last,
				and the CPU clock lacks what running threads used since a tick, or
				the sums all of stays on a CPU that have not ended */
	u64 switch_count;    /* of all threads, by the kernel */
	u64 thread_count;    /* that live */
	u64 account_count;   /* of them with an account */
	u64 has_wait;	     /* 1: the kernel counts the time that threads wait for a CPU */
	u64 forked_count;    /* processes that the target started */
	u64 untracked_count; /* threads that live and have no account */
	u64 wait_share;	     /* the stacks of one wait in so many were walked */
	u64 timed;	     /* 1: the kernel's statistics of BPF programs were on */
	u64 merged_count;    /* windows that were not cut because the stream was full */
	u64 own_cpu_ns; /* of the recorder for this target; the first has watchdog and writing */
	u64 resident_bytes; /* memory of the recorder, as read last */
	u64 host_user_ns;
	u64 host_system_ns;
	u64 host_interrupt_ns;
	u64 host_steal_ns;
	u64 host_idle_ns;
	u64 delayed_ack_count; /* of the target's network; all bits set: unknown */
	u64 listen_drop_count; /* connections that its full queues refused; all bits set: unknown */
	u64 losses[16];	       /* enum loss of ledger.h */
	u64 walks[8];	       /* how stack walks ended: enum walk_count of unwind.h */
	u64 probes_ns;	       /* what its probes cost the target, by the prices of the plan */
	u64 scheduler_ns;      /* of the programs at its scheduler and socket events */
	u64 neighbours_ns;     /* of the same programs at those of other processes */
	u64 samples_ns;	       /* and of those at CPU samples */
	u64 restarts;	       /* 1: the ledger was off and begins again where this window ends */
	u64 is_stretch;	  /* 1: a calibration stretch, in which probes told parts of commands */
	u64 part_ns[3];	  /* then: CPU time of reading, executing and answering them */
	u64 suspended_ns; /* the host, since the recorder started: in no other time */
	char level[16];	  /* what was on: that of START, or with a budget less, or none */
};

/* What the probes of a function cost, measured before they were attached. */
struct stream_function {
	u64 function;  /* number of it in the plan */
	u64 pair_ns;   /* for the caller of a call */
	u64 inside_ns; /* of that, what is in the time of the call itself */
};

/* Calls of a function in a phase, over a number of bytes. */
struct stream_function_sum {
	u32 function;
	u32 phase;
	u32 size_class; /* 0: no bytes; n: from 2^(n-1) to 2^n - 1 */
	u32 reserved;
	struct function_sum sum;
};

/* A bucket of a function's times. */
struct stream_function_time {
	u32 function;
	u32 size_class;
	u32 bucket; /* as in struct stream_latency */
	u32 reserved;
	u64 count;
};

/* What was lost of functions. */
struct stream_function_loss {
	u64 losses[8]; /* enum function_loss of functions.h */
};

/* A control group of the target, or one above it, that may have a CPU quota. */
struct stream_quota {
	u64 group; /* 0: its own; then those above it */
	u64 period_count;
	u64 throttled_count; /* periods in which it used up its quota */
};

/* The function at an address of the kernel. */
struct stream_kernel_name {
	u64 address;
	u64 offset_bytes; /* of the address in the function */
	char name[96];
};

/* Why the recording failed. */
struct stream_error {
	u64 time_ns;
	u64 exit_code; /* of tlstax: docs/exit-codes.md */
	char text[512];
};

/* The end of a recording. */
struct stream_end {
	u64 time_ns; /* when everything was detached */
	u64 exit_code;
	u64 windows_count;
	u64 merged_count; /* windows that were not cut because the stream was full */
	u64 detach_ns;	  /* how long detaching took */
	char ending[192]; /* how the target ended, or "it was running" */
};

/* A text of the measured host, such as proc/1234/status; several of one name follow each other. */
struct stream_fact {
	u32 name_bytes;
	u32 reserved;
};

/* A file with code of the target. */
struct stream_file {
	u64 size_bytes;
};

/* Bytes of that file. */
struct stream_part {
	u64 offset;
};

#endif

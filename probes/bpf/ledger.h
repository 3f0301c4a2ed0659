/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the ledger's programs and its reader (collectors/recording/programs/ledger_layout.py) share.
 *
 * The order of the enumerations is the order of collectors/capture/vocabulary.py; a test compares
 * them. All times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef TLSTAX_LEDGER_H
#define TLSTAX_LEDGER_H

#include "cookie.h"
#include "counts.h"

enum phase {
	PHASE_UNKNOWN,
	PHASE_BACKGROUND,
	PHASE_IDLE,
	PHASE_CONNECT,
	PHASE_HANDSHAKE,
	PHASE_SIGN,
	PHASE_KEYGEN,
	PHASE_DERIVE,
	PHASE_VERIFY,
	PHASE_CERTIFICATE,
	PHASE_RECORD_READ,
	PHASE_RECORD_WRITE,
	PHASE_COMMAND,
	PHASE_TDE,
	PHASE_DISCONNECT,
	PHASES = 16, /* room for one more; a power of two bounds every index by a mask */
};

enum state {
	STATE_ON_CPU,
	STATE_RUNNABLE,
	STATE_BLOCKED_NETWORK,
	STATE_BLOCKED_DISK,
	STATE_BLOCKED_LOCK,
	STATE_BLOCKED_FUTEX,
	STATE_BLOCKED_OTHER,
	STATES = 8,
};

enum loss {
	LOSS_THREAD_SLOTS_FULL,
	LOSS_HANDSHAKE_RING_FULL,
	LOSS_HANDSHAKE_MAP_FULL,
	LOSS_USER_STACK_FAILED,
	LOSS_KERNEL_STACK_FAILED,
	LOSS_STACK_MAP_FULL,
	LOSS_SAMPLE_MAP_FULL,
	LOSS_OFFCPU_MAP_FULL,
	LOSS_PHASE_STACK_OVERFLOW,
	LOSS_PROBE_RECURSION_MISSED, /* read from the kernel by the loader */
	LOSS_STORAGE_FAILED,
	LOSS_CLOCK_RETRY_FAILED,
	LOSS_HEALED,
	LOSS_UNMATCHED_EXIT,
	LOSS_SWITCH_MISSED,
	LOSS_RECORDER_STARVED, /* counted by the recorder */
	LOSSES = 16,
};

/* Action at a probe site; the loader puts it into the site's attach cookie. */
enum action {
	ACTION_NONE,
	ACTION_PHASE,
	ACTION_PHASE_OPEN,
	ACTION_AWAIT_COMMAND,
	ACTION_BASE_CONNECT,
	ACTION_BASE_IDLE,
	ACTION_BASE_DISCONNECT,
	ACTION_BASE_PARK,
	ACTION_HANDSHAKE_BOUND,
	ACTION_HANDSHAKE_CALL,
	ACTION_HANDSHAKE_GROUP,
	ACTION_HANDSHAKE_FREE,
	ACTION_WAIT,
	ACTION_CALL,
	ACTION_BASE_POOL,
	ACTION_PHASE_CLOSE,
	ACTION_AWAIT_RECEIVE, /* await_command, without a tracepoint for it */
	ACTION_PHASE_SEND,    /* phase, whose end a tracepoint may show; reads the bytes to send */
	ACTION_COMMAND_READS, /* the command itself will read from its client */
	ACTION_CROSSING,      /* is counted where it belongs, and changes nothing */
	ACTION_HANDSHAKE_SOCKET, /* the connection gets its socket: see networks.bpf.h */
	ACTION_HANDSHAKE_KEM,	 /* a key's algorithm, which is the group if it encapsulates keys */
};

enum { MAX_SITES = 256, MAX_FRAMES = 16, MAX_SYSCALLS = 512, GROUP_BYTES = 24 };
enum { NETWORK_BYTES = 16, NETWORK_WORDS = 4 };

/* Log-linear: 16 buckets an octave, so the middle of a bucket is at most 3.1 % off. */
enum { LATENCY_SUBBITS = 4, LATENCY_BUCKETS = 640 };

enum { MORE_STACKS = 1 << 30 }; /* bit of a stack id: it is in the second stack map */
enum { STACK_DEPTH = 64 }; /* deepest frames kept; the two maps are then 24 MB of kernel memory */

/* What a blocking system call waits for. */
enum wait_kind {
	WAIT_OTHER,
	WAIT_NETWORK,
	WAIT_DISK,
	WAIT_FUTEX,
	WAIT_BY_FILE, /* write and friends: depends on the file descriptor */
	WAIT_RECEIVE, /* network, to receive */
	WAIT_READ,    /* by file; if that is a socket, to receive */
	WAIT_POLL,    /* network, to receive or to send */
	WAIT_EPOLL,   /* network, to receive on any of many */
};

/* Paused: the dense programs are detached, only rare boundaries and samples are recorded. */
enum thread_status { THREAD_FREE, THREAD_LIVE, THREAD_EXITED, THREAD_PAUSED };
/* The first of the capture's roles; the others come by cookie and have no effect here. */
enum thread_role { ROLE_BACKGROUND, ROLE_CONNECTION };

enum thread_flag {
	FLAG_AWAIT = 1,	      /* reading the next command: blocked on the network is idle */
	FLAG_PARK = 2,	      /* connection gone: blocked on a condition is idle */
	FLAG_WAIT_STACK = 4,  /* the current wait's stacks were walked */
	FLAG_NO_RECORD = 8,   /* the current handshake call belongs to no handshake record */
	FLAG_POOL = 16,	      /* a pool's thread: blocked on events or a condition is idle */
	FLAG_ANSWERED = 32,   /* the command has sent something to its client */
	FLAG_RECEIVES = 64,   /* the command itself receives from its client */
	FLAG_RECEIVED = 128,  /* and has received */
	FLAG_SEND_ENDS = 256, /* a send has ended, but the thread lost its CPU on the way out */
	FLAG_BEGUN = 512,     /* level flow: a command came and has not ended */
};

enum frame_flag {
	FRAME_OPEN = 1,	    /* ended by a later boundary, not by an exit probe */
	FRAME_STITCHED = 2, /* a handshake between two calls: its stack pointer is gone */
	FRAME_SENDS = 4,    /* ended by its last send */
	FRAME_RETURNS = 8,  /* ended when its return address is gone from the stack */
};

/* The phase of the current time is decided by the next boundary: see pending.bpf.h. */
enum pending_kind { PENDING_NONE, PENDING_READING, PENDING_SENT };

enum outcome { OUTCOME_SUCCESS, OUTCOME_FAILURE, OUTCOME_ABANDONED };

struct frame {
	u64 sp; /* user stack pointer at entry: a frame below the current one is dead */
	u64 start_ns;
	u64 returns; /* where the function returns to; only with FRAME_RETURNS */
	u32 phase;
	u16 flags;
	u8 site;
	u8 tail_calls; /* functions of the same phase that this one left by a jump into */
};

/* A client's address up to the length that was asked for; the rest of it is 0. */
struct network {
	u32 family; /* 0: unknown, or not asked for; else an AF_ number */
	u8 address[NETWORK_BYTES];
};

/* One connection's handshake; also the ring buffer record. */
struct handshake {
	u64 ssl; /* key while it is open; zeroed in the record */
	u64 start_ns;
	u64 end_ns;
	u64 state_ns[STATES];
	u64 phase_ns[8]; /* handshake sign keygen derive verify certificate */
	u32 call_count;
	u32 network_wait_count;
	u32 tid;
	u32 outcome;
	s32 tls_version; /* -1: unknown */
	s32 cipher_id;	 /* -1: unknown */
	s32 resumed;	 /* -1: unknown */
	u32 active;
	u32 unfollowed; /* its thread's states were not recorded for a while: state_ns lacks that */
	s32 is_server;	/* -1: unknown */
	char group[GROUP_BYTES];
	struct network network; /* of the client */
	u32 reserved;
};

struct pending {
	u32 kind;
	u32 charged; /* the phase that the time is charged to until it is decided */
	u32 depth;   /* depth at its start, to restore */
	u32 base;
	u32 shard;    /* of the histogram that the command was counted in */
	u32 received; /* READING: data of the client came since */
	u64 start_ns;
	u64 before_ns[STATES]; /* the charged cells when it began */
};

/* A CPU's clocks at a switch. */
struct cpu_clocks {
	u64 lag_ns;	  /* time now less the scheduler's, which starts elsewhere */
	u64 uncharged_ns; /* charged to no thread: stolen by the hypervisor, or in interrupts */
};

struct thread_slot {
	u32 tid;
	u32 status;
	u32 role;
	u32 flags;
	u64 thread_start_ns;
	u64 first_ns;
	u64 last_ns; /* everything up to here is charged */
	u64 exit_ns;
	u64 run_start_ns;	/* when it was last switched in */
	u64 sched_cpu_ns;	/* its CPU time by the scheduler when it was last switched */
	s64 steal_ns;		/* on-CPU time that the scheduler charges to nobody */
	s64 handed_ns;		/* on-CPU time that it charges to the next thread */
	u64 block_wait_ns;	/* run delay by the scheduler when it last blocked */
	u64 asleep_wait_ns;	/* time asleep that is in the run delay: see woken_from_sleep() */
	struct cpu_clocks came; /* when it was last switched in: see left_cpu() */
	u64 uncertain_ns;
	u64 phase_event_ns; /* last time a boundary of this thread was seen */
	u64 base_start_ns;
	u64 wait_start_ns;
	u64 wait_sp;	  /* of the function whose futex waits are explained; 0: in none */
	u64 wait_returns; /* where it returns to */
	u64 call_sp;	  /* of the outermost handshake call; 0: in none */
	u32 state;
	u32 owner; /* the phase that is charged */
	u32 base;  /* the phase when no frame is open */
	u32 depth;
	u32 healed_count;
	s32 wait_syscall;
	s32 wait_user_stack;
	s32 wait_kernel_stack;
	u32 wait_weight;
	u32 wait_as;	   /* state of futex waits while wait_sp is set */
	u64 stack_base;	   /* where the thread's stack and its control block meet; 0: unknown */
	u64 client_socket; /* socket that the last command came from; 0: unknown */
	u64 last_socket;   /* socket of the last receive */
	u64 sent_socket;   /* socket of the last send in a record_write */
	u64 unsent_bytes;  /* of the innermost record_write; records may add to what is asked for */
	u64 answered_ns;   /* level flow: when the command last sent something to its client */
	u32 message;	   /* level flow: what of one was received last, see flow.bpf.h */
	u32 message_bytes; /* of its body */
	u64 seen_count;	   /* switches from the CPU, but for its last */
	struct network peer; /* of the socket that its next handshake is on */
	u32 reserved;
	struct thread_counts first_counts; /* when it got its account */
	struct thread_counts counts;	   /* at the last edge of a window, or at its end */
	char comm[16];
	u64 ns[PHASES][STATES];
	u64 count[PHASES];
	struct frame frames[MAX_FRAMES];
	struct pending pending;
	struct handshake handshake;
};

struct latency_shard {
	u64 count[PHASES][LATENCY_BUCKETS];
};

struct site_hits {
	u64 count[MAX_SITES];
	u64 begun[MAX_SITES];  /* phases that its hits began */
	u64 healed[MAX_SITES]; /* those of them whose end was not seen */
	u64 sends;	       /* of the target's threads, not of its sites */
};

struct sample_key {
	u32 phase;
	s32 syscall; /* -1: in user mode */
	s32 user_stack;
	s32 kernel_stack;
	u64 user_ip;   /* where the thread was, when its user stack could not be kept; else 0 */
	u64 kernel_ip; /* the same for the kernel stack */
};

struct offcpu_key {
	u32 phase;
	u32 state;
	s32 syscall;
	s32 user_stack;
	s32 kernel_stack;
};

struct offcpu_value {
	u64 wait_count;
	u64 time_ns;
};

struct config {
	s32 tgid;
	u32 switch_has_state;	   /* tp_btf sched_switch passes prev_state (5.18+) */
	u32 client;		   /* its other work is background: 1 client, 2 tunnel or proxy */
	u32 covered_by_tracepoint; /* events of sockets are used: see on_receive() */
	u32 slots;		   /* threads that can have an account at a time */
	u32 shards;		   /* of latencies and hits: CPUs, as far as each has its own */
	u32 flow;		   /* sockets alone tell commands: see flow.bpf.h */
	u32 no_user_stacks;	   /* walking them is dangerous on this kernel: see exit-race */
	u32 network_bits;	   /* of a client's IPv4 address that are kept; 0: none of any */
	u32 network6_bits;	   /* of an IPv6 address */
	s32 off_version; /* struct offsets read from libssl's own accessors; -1: unknown */
	s32 off_rwstate;
	s32 off_shutdown;
	s32 off_state;
	s32 off_hit;
	s32 off_session;
	s32 off_session_cipher;
	s32 off_cipher_id;
	s32 off_server;
	u8 wait_kind[MAX_SYSCALLS];
};

/*
 * The scheduler stops a thread's clock when it starts to select the next one; the tracepoint
 * fires up to this much later. A larger difference has another cause.
 */
enum { SWITCH_GAP_NS = 20000 };

/* Where stolen time is known: choosing includes looking for a thread on other CPUs. */
enum { CHOICE_MOST_NS = 500000 };

enum { FORGOTTEN = 2 };

/* Written by the loader while the programs run. */
struct control {
	u32 offcpu_mask; /* walk the stacks of one blocking wait in mask + 1 */
	u32 paused;	 /* dense programs are off, or about to be on; FORGOTTEN: rare ones, too */
	u64 blind_ns;	 /* since then boundaries of connections are detached; 0: they are not */
};

/* Written by the programs: exec and forks of the target, and its threads. */
struct lifecycle {
	u64 executed_ns;     /* when it executed another program; 0: it did not */
	u64 forked_count;    /* processes that it started; they are not measured */
	u64 fresh_count;     /* slots that were ever in use: the first ones of the map */
	u64 reused_count;    /* recycled slots that were taken, see free_slots */
	u64 untracked_count; /* threads that live and got no account: all slots were in use */
	u64 refused_count;   /* threads that the kernel refused storage for */
	u64 unseen_second;   /* when wake-ups were last found that were not reported */
	u64 unseen_count;    /* and how many in that second */
	u64 ended_count;     /* accounts whose threads have ended: counted after they are marked */
};

#endif

# SPDX-License-Identifier: GPL-2.0-only
"""The closed sets of names that a capture uses, with what each one means.

The order of PHASES and STATES is the order of the enums in the BPF programs: a number read from
a BPF map is an index into these tuples. Entries are appended, never moved or reused.
"""

from typing import NamedTuple

from tlstax.collectors.capture.frame_ids import FRAMES_MAX


class Term(NamedTuple):
    """A name with its meaning in one sentence."""

    name: str
    meaning: str


class LossKind(NamedTuple):
    """A way to lose data: what happened, and what that means for the result."""

    name: str
    meaning: str
    consequence: str


PHASE_TERMS = (
    Term("unknown", "a thread seen since the start, before its first phase boundary"),
    Term(
        "background",
        "a thread that never served a connection, or that sends the binary log to a replica",
    ),
    Term("idle", "waiting for the next command, connection or binary log event"),
    Term("connect", "from accept to authenticated with its reads and writes, without handshake"),
    Term("handshake", "the TLS handshake, excluding the five sub-phases below"),
    Term("sign", "the private-key signature inside a handshake"),
    Term("keygen", "generating the ephemeral key inside a handshake"),
    Term("derive", "computing the shared secret inside a handshake"),
    Term("verify", "checking a signature inside a handshake"),
    Term("certificate", "checking a certificate chain inside a handshake"),
    Term("record_read", "from wake-up with data to the dispatch of the command (the wait is idle)"),
    Term("record_write", "sending the reply, including encryption and system calls"),
    Term("command", "from dispatch to the end of the command, without records; at level flow, all"),
    Term("tde", "encrypting or decrypting pages and logs at rest"),
    Term("disconnect", "from the end of the last command to the thread parked or gone"),
)
PHASES = tuple(term.name for term in PHASE_TERMS)
HANDSHAKE_SUB_PHASES = ("sign", "keygen", "derive", "verify", "certificate")
ASYMMETRIC_PHASES = ("sign", "keygen", "derive", "verify")
HANDSHAKE_PHASES = ("handshake", *HANDSHAKE_SUB_PHASES)
DETAIL_PHASES = HANDSHAKE_SUB_PHASES[1:]  # those that level signature leaves out

STATE_TERMS = (
    Term("on_cpu", "running on a CPU, including interrupts during that time"),
    Term("runnable", "ready and waiting for a CPU"),
    Term("blocked_network", "waiting for a socket"),
    Term("blocked_disk", "waiting for a block device or a file"),
    Term("blocked_lock", "waiting for a lock that the server names"),
    Term("blocked_futex", "waiting on a futex whose purpose is unknown"),
    Term("blocked_other", "waiting for anything else"),
)
STATES = tuple(term.name for term in STATE_TERMS)

CATEGORY_TERMS = (
    Term("asymmetric", "RSA, EC and DH arithmetic: signatures and key exchange"),
    Term("cipher", "bulk encryption: AES, ChaCha20, GCM multiplication"),
    Term("digest", "hashes and MACs: SHA, HMAC, Poly1305"),
    Term("record_crypto", "cipher and digest stitched into one kernel; they cannot be split"),
    Term("kdf_rng", "key derivation and random numbers"),
    Term("certificate", "X.509, ASN.1 and CA loading"),
    Term("provider_fetch", "OpenSSL 3 method fetch, its property and name tables and locks"),
    Term("tls_protocol", "TLS state machine and record framing"),
    Term("lock_spin", "spinning and lock operations on the CPU"),
    Term("memory", "allocation, copying and clearing of memory"),
    Term("kernel_network", "the kernel in a network system call"),
    Term("kernel_other", "the kernel anywhere else"),
    Term("server", "the database server's own code"),
    Term("probe", "the measurement itself"),
    Term("unknown", "nothing in the taxonomy matches"),
)
CATEGORIES = tuple(term.name for term in CATEGORY_TERMS)

LOSS_KINDS = (
    LossKind(
        "thread_slots_full",
        "threads that found no room in the ledger, each counted once",
        "their time is missing from the ledger until a thread ends and leaves its room to them",
    ),
    LossKind(
        "handshake_ring_full",
        "the ring buffer was full when a handshake finished",
        "handshake records are missing; ledger and phase counts still include them",
    ),
    LossKind(
        "handshake_map_full",
        "more handshakes in flight than the map holds",
        "handshake records are missing; ledger and phase counts still include them",
    ),
    LossKind(
        "user_stack_failed",
        "a user stack could not be walked",
        "the sample is filed by phase and system call only",
    ),
    LossKind(
        "kernel_stack_failed",
        "a kernel stack could not be walked",
        "the sample has no kernel frames",
    ),
    LossKind(
        "stack_map_full",
        "more distinct stacks than the stack map holds, or a hash collision",
        "the sample keeps only its innermost function; a wait keeps its phase and system call",
    ),
    LossKind(
        "sample_map_full",
        "more distinct samples than the sample map holds",
        "samples are missing from the composition; ledger totals are still exact",
    ),
    LossKind(
        "offcpu_map_full",
        "more distinct waits than the off-CPU map holds",
        "waits are missing from the off-CPU stacks; ledger totals are still exact",
    ),
    LossKind(
        "phase_stack_overflow",
        "phases nested deeper than the phase stack",
        "the time of the inner phase is filed under the outer one",
    ),
    LossKind(
        "probe_recursion_missed",
        "the kernel skipped a probe because another program ran on that CPU",
        "a boundary is missing until the repair; the time between is uncertain",
    ),
    LossKind(
        "storage_failed",
        "the kernel refused a thread's storage",
        "the thread's time is missing from the ledger until a window ends",
    ),
    LossKind(
        "clock_retry_failed",
        "a counter changed during every attempt to read it",
        "the thread's time moves to the next window",
    ),
    LossKind(
        "healed",
        "an open phase was closed by the stack pointer because its exit never arrived",
        "the time from the missed exit to the repair is uncertain and may be misfiled",
    ),
    LossKind(
        "unmatched_exit",
        "an exit arrived for a phase that was not open",
        "the phase's entry was missed; its time is filed under the outer phase",
    ),
    LossKind(
        "switch_missed",
        "the kernel did not report that a thread was woken, or was given a CPU",
        "its times since are the scheduler's, late by microseconds, or on a CPU that it had left",
    ),
    LossKind(
        "recorder_starved",
        "the recorder got no CPU for more than 2 s, and the programs were idle meanwhile",
        "the window that it happened in has no ledger, and its level is none",
    ),
)
WALK_LOSS_KINDS = (
    *(
        LossKind(kind, f"a stack walk {met}", "the stack lacks its outer frames")
        for kind, met in (
            ("walk_no_mapping", "came to an address without code, or with code mapped just now"),
            ("walk_no_row", "came to code with neither call frame information nor frame pointer"),
            ("walk_unsupported", "came to call frame information that tlstax does not follow"),
            ("walk_unreadable", "found its stack swapped out, overwritten or given back"),
            ("walk_too_deep", "found more than 127 frames"),
        )
    ),
    LossKind(
        "walk_not_sent",
        "more new stacks in a window than their ring buffer holds",
        "the sample keeps only its innermost function; a wait keeps its phase and system call",
    ),
)
FUNCTION_LOSS_KINDS = (
    LossKind(
        "function_map_full",
        "more functions, phases, sizes or times than fit into the maps of --functions",
        "calls or times of functions are missing",
    ),
    LossKind(
        "function_stack_overflow",
        "timed functions nested deeper than the stack of calls",
        "the inner call is counted without a time",
    ),
    LossKind(
        "function_healed",
        "a function was left without its exit (longjmp, or a lost probe hit)",
        "the call is counted without a time",
    ),
    LossKind(
        "function_unmatched_exit",
        "an exit arrived for a call whose entry was not seen",
        "the call is missing from the function's counts, unless it was open when tlstax attached",
    ),
    LossKind(
        "function_storage_failed",
        "the kernel refused thread-local storage",
        "the call is counted without a time",
    ),
    LossKind(
        "function_recursion_missed",
        "the kernel skipped a function's probe because another program ran on that CPU",
        "calls or times of functions are missing",
    ),
)
TOOL_LOSS_KINDS = (
    LossKind(
        "bpftrace_events_lost",
        "bpftrace read its events more slowly than they arrived",
        "printed lines, such as handshakes, are missing; its maps are complete",
    ),
    LossKind(
        "bpftrace_entry_unmatched",
        "a call began at the same stack pointer as one that never ended",
        "a call without its exit is missing from counts and times",
    ),
    LossKind(
        "bpftrace_exit_unmatched",
        "a call ended whose beginning was not seen",
        "the call is missing, unless it was open when bpftrace attached",
    ),
    LossKind(
        "bcc_stack_missed",
        "a stack table of a bcc tool was full, or another stack occupied the slot",
        "time or samples of the stack are included, without its frames; its phase is unknown",
    ),
    LossKind(
        "bcc_map_full",
        "a bcc tool reached its limit of distinct stacks (10,240)",
        "an unknown number of further stacks is missing: record for a shorter time",
    ),
)
DEPTH_LOSS_KINDS = (
    LossKind(
        "stack_cut",
        f"a sample or wait had a stack of more than {FRAMES_MAX} frames",
        "its outermost frames are missing, and its phase may be unknown",
    ),
    LossKind(
        "stack_forgotten",
        "waits that outlasted 24,576 to 49,152 new stacks, or stacks that were overwritten",
        "the sample keeps only its innermost function; a wait keeps its phase and system call",
    ),
)
"""Not the kernel's: counted where stacks are read or imported."""
LOSSES = {
    kind.name: kind
    for kind in (
        *(*LOSS_KINDS, *WALK_LOSS_KINDS, *FUNCTION_LOSS_KINDS, *TOOL_LOSS_KINDS),
        *DEPTH_LOSS_KINDS,
    )
}

REPAIRS = ("healed", "switch_missed")
"""Kinds that are repaired: they are shown, without a warning."""

TARGET_ROLE_TERMS = (
    Term("server", "the database server; its target_id is 1"),
    Term("client", "a process that connects to the server"),
    Term("tunnel", "a process that carries the bytes of clients to the server"),
    Term("proxy", "a process between clients and the server"),
)
LEVEL_TERMS = (
    Term("full", "every boundary that was planned, with scheduler events: the ledger was kept"),
    Term("record", "handshake, command and records, with scheduler events: the ledger was kept"),
    Term("command", "handshake and command, with scheduler events: the ledger was kept"),
    Term("flow", "handshake, scheduler and socket events: the ledger; records are in `command`"),
    Term("connection", "handshake and its sub-phases, connect, CPU samples; no ledger"),
    Term("handshake", "handshake and its sub-phases, CPU samples; no ledger"),
    Term("signature", "handshake and sign, CPU samples; no ledger"),
    Term("sample", "CPU samples only; no boundary, no ledger"),
    Term("none", "nothing was recorded: time between two windows of a budget"),
)
LEVELS = tuple(term.name for term in LEVEL_TERMS)
LEDGER_LEVELS = ("full", "record", "command", "flow")
"""Levels of windows in which the ledger was kept."""

SERIES_UNIT_TERMS = (
    Term("per_second", "events per second"),
    Term("bytes_per_second", "bytes per second"),
    Term("cpus", "busy CPUs, on average"),
    Term("threads", "threads that waited or ran, on average"),
    Term("number", "a number without a unit"),
    Term("share", "a part of 1"),
    Term("time_ns", "a duration"),
)
SERIES_UNITS = tuple(term.name for term in SERIES_UNIT_TERMS)
SERIES_HOW_TERMS = (
    Term("rate", "growth of the sum of the counters per second"),
    Term("per_time", "growth of the sum of the counters (ns), per ns of wall time"),
    Term("level", "the sum of the readings; 0 if the source has none"),
    Term("average", "the reading, a mean computed by the source; unknown if the source has none"),
    Term("mean", "growth of the first counter divided by growth of the second"),
    Term("complement", "1 minus growth of the first counter divided by growth of the second"),
)
SERIES_HOWS = tuple(term.name for term in SERIES_HOW_TERMS)
SERIES_LINES_MAX = 5
"""Lines of one chart: more cannot be distinguished by colour and dashes."""

FUNCTION_CATEGORY_TERMS = (
    Term("cipher", "bulk encryption and decryption"),
    Term("digest", "hashes and MACs"),
    Term("asymmetric", "RSA, EC and DH operations"),
    Term("kdf", "key derivation"),
    Term("rng", "random numbers"),
)
FUNCTION_CATEGORIES = tuple(term.name for term in FUNCTION_CATEGORY_TERMS)

ROLE_TERMS = (
    Term(
        "background", "a thread of the server without a connection; no more specific role was found"
    ),
    Term("connection", "serves the connections of clients, one at a time"),
    Term("pool_worker", "serves the connections of a thread pool, whichever is ready"),
    Term("pool_timer", "monitors a thread pool: stalls and timeouts"),
    Term("binlog_dump", "sends the binary log to a replica; one endless command"),
    Term("replica_io", "fetches the binary log from a source, as a client of it"),
    Term("replica_sql", "applies events from a source, or passes them to its workers"),
    Term("semisync_ack", "receives the acknowledgements of semi-synchronous replicas"),
    Term("binlog", "background work on the binary log"),
    Term("acceptor", "listens for new connections"),
    Term("page_io", "reads and writes pages asynchronously"),
    Term("page_flush", "writes changed pages to their files"),
    Term("log_flush", "writes and flushes the redo log"),
    Term("purge", "removes old row versions"),
    Term("engine_task", "tasks of the storage engine: a pool of threads for purge, flush and I/O"),
    Term("engine_monitor", "watches the storage engine: lock timeouts, errors, statistics"),
    Term("encryption", "encrypts or rotates the keys of tablespaces"),
    Term("event_scheduler", "runs scheduled events"),
    Term("signal_handler", "waits for signals"),
    Term("timer", "statement timeouts and other timers"),
    Term("manager", "periodically flushes tables and closes what is idle"),
    Term("x_plugin", "serves or accepts connections of the X protocol"),
    Term("wsrep", "Galera: applies, rolls back or replicates write sets"),
)
ROLES = tuple(term.name for term in ROLE_TERMS)
"""The order is that of the numbers in attach cookies; entries are appended, never moved."""
CONNECTION_ROLES = ("connection", "pool_worker", "binlog_dump", "x_plugin")
"""Threads whose life is checked against other clocks: they serve clients or replicas."""
ARMS = ("plaintext", "tls")
OUTCOMES = ("success", "failure", "abandoned")

# SPDX-License-Identifier: GPL-2.0-only
"""The tables of a capture: the only definition. SQL and docs/capture.md are generated from it.

Each NamedTuple is one table (snake case of the class name); its fields are the columns in order.
Integers are 64-bit signed. Unless a column says otherwise, times are CLOCK_MONOTONIC nanoseconds.

A table with a key (its first column) holds one row per key: adding a row again replaces it, so a
thread can be added at its birth and again at its end. Rows of tables without a key are facts:
every reader sums two ledger rows with the same phase and state.

A column that was added after version 1 is at the end of its table and has a default, which readers
use for a capture of an older version. A table added since is read as empty.
"""

import re
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

APPLICATION_ID: Final = 0x746C7378
"""SQLite application_id of a capture: the letters "tlsx"."""
USER_VERSION: Final = 12
"""SQLite user_version: the version of this schema. Older ones are read, see above."""


class Meta(NamedTuple):
    """Facts about the recording and the host, one per row."""

    key: Annotated[str, "name of the fact, see META_KEYS"]
    value: Annotated[str, "its value as text; numbers in decimal"]


META_KEYS: Final = {
    "tlstax_version": "version of tlstax that recorded",
    "created_wall_ns": "wall clock (ns since 1970, UTC) at monotonic_anchor_ns",
    "monotonic_anchor_ns": "CLOCK_MONOTONIC at the same instant: wall = time - anchor + created",
    "hostname": "host that recorded",
    "kernel": "kernel release (uname -r)",
    "cpu_count": "CPUs online",
    "cpu_model": "model name of the CPU",
    "cpu_flags": "CPU features that matter to crypto, space separated (aes avx2 sha_ni ...)",
    "sample_hz": "CPU samples per second and CPU; 0 = no sampling",
    "engine": "what recorded: native",
    "command_level": "highest level that was probed: sample, signature, handshake, flow, command "
    "or record",
    "socket_events": "what told that sockets received and sent: tracepoints, functions or none",
    "budget_share": "limit of the overhead: a share of the server's CPU time; absent = no budget",
    "effect_floor_cpus": "least CPUs that shares of the server's CPU time are computed with",
    "budget_choice": "planned use of the budget, as a sentence",
    "predicted_share": "expected overhead, as a share of the server's CPU time",
    "predicted_probe_share": "the part of the expected overhead for probe hits",
    "predicted_scheduler_share": "the part of the expected overhead for the server's events",
    "predicted_neighbour_share": "the part of it for the events of other processes",
    "predicted_sample_share": "the part of the expected overhead for CPU samples",
    "predicted_engine_share": "the part of the expected overhead for the tlstax process",
    "hit_cost_source": "where the overhead has the cost of a probe hit from: measured (in the "
    "server), scaled (with all that recording costs, to what was measured in the server) or "
    "default (of a loop on the host, multiplied)",
    "hit_cost_ns": "measured cost of a probe hit in the server, its program included; absent = "
    "not measured",
    "hit_cost_low_ns": "lower end of its 95 % interval",
    "hit_cost_high_ns": "upper end of its 95 % interval",
    "hit_cost_pair_count": "pairs of stretches with and without probes that it is the median of",
    "send_cost_ns": "the server's CPU time that a send takes more while it is recorded, measured "
    "before the recording; absent = not measured",
    "send_cost_low_ns": "lower end of its 95 % interval",
    "send_cost_high_ns": "upper end of its 95 % interval",
    "send_cost_said_ns": "what the prices of hits and events say of it",
    "send_cost_told_ns": "what windows tell of it: both, each as certain as it is",
    "send_host_cost_ns": "the same of the server and its clients on this host; absent = none is "
    "certain",
    "send_host_cost_low_ns": "lower end of its 95 % interval",
    "send_host_cost_high_ns": "upper end of its 95 % interval",
    "send_host_cost_said_ns": "what prices say of it",
    "send_host_cost_told_ns": "what windows tell of it",
    "send_host_cost_is_used": "1: what clients pay is told by it, or as the usual part where none "
    "is certain; 0: not at all",
    "send_cpu_ns": "the server's CPU time that a send takes while it is not recorded",
    "send_cost_pair_count": "pairs of stretches with and without recording that these are of",
    "start_cpu_ns": "CPU time of tlstax before the first window: starting, planning, attaching",
    "end_cpu_ns": "CPU time of tlstax after the last window: the last of peers, naming functions",
    "recorded_with": "pids that the same recorder recorded, too: CPU time of tlstax is this "
    "server's part, its memory that of all; absent = none",
    "recording_id": "the same in the captures of one recording of several servers; absent = one",
    "watch_source": "source_id of its rollups in a data set; of raw windows of a watch only",
    "watch_host": "name of the host in that data set",
    "watch_cluster": "cluster of the host there, or ''",
    "user_stacks": "how user stacks are walked: unwind tables, frame pointers or none",
    "unwind_bytes": "kernel memory of the unwind tables",
    "stack_walk_count": "user stacks that were walked by unwind tables",
    "stack_whole_count": "those that reach the first function of their thread",
    "thread_room": "threads for which the ledger had room",
    "thread_room_bytes": "kernel memory of that room",
    "probe_kind": "how uprobes are attached: uprobe_multi or perf_event",
    "functions": "primitives requested with --functions, by category or id",
    "missing_functions": "ids of requested primitives that the target does not define, or that "
    "only a probe would see that is not safe there",
    "client_networks": "bits of clients' IPv4 and IPv6 addresses in handshakes, such as 24,48; "
    "absent = no address is recorded",
    "privacy": "what a capture never holds",
    "bpftrace_program": "the program that bpftrace ran",
    "bpftrace_sample_hz": "CPU samples per second and CPU that bpftrace took",
    "pause_ns": "how long the server was stopped for the snapshots of pt-pmp",
    "end_monotonic_ns": "CLOCK_MONOTONIC when the recording ended",
    "server_pids": "process ids of the server's starts, in order; only where there are several",
    "target_ending": "how the server ended, or that it was running, when the recording ended",
}
"""Known meta keys. Readers treat all as optional; unknown keys are kept and shown."""


class Target(NamedTuple):
    """A measured process: the server (target_id 1), a client, a tunnel or a proxy."""

    target_id: Annotated[int, "key"]
    pid: Annotated[int, "process id in the recording host's namespace"]
    exe: Annotated[str, "path of the executable as the target sees it"]
    build_id: Annotated[str, "GNU build-id in hex, or ''"]
    server: Annotated[str, "kind of server: mariadb, mysql, percona or unknown"]
    server_version: Annotated[str, "version, or unknown"]
    tls_library: Annotated[str, "OpenSSL, wolfSSL, yaSSL, or unknown"]
    tls_version: Annotated[str, "version of the TLS library, or unknown"]
    tls_linkage: Annotated[str, "shared, static or unknown"]
    role: Annotated[str, "its role in the measured connections, see Roles of a target"] = "server"
    own_pid: Annotated[int, "process id in its own pid namespace; 0 = not read"] = 0
    label: Annotated[str, "name of a tunnel or proxy, such as 'openvpn client', or ''"] = ""


class Probe(NamedTuple):
    """One probe that was attached, with its cost."""

    probe_id: Annotated[int, "key"]
    boundary: Annotated[str, "name of the phase boundary in probes/libraries"]
    event: Annotated[str, "enter or exit"]
    function: Annotated[str, "function or tracepoint that was probed"]
    object: Annotated[str, "file that holds it; kernel for tracepoints"]
    build_id: Annotated[str, "GNU build-id of the object in hex, or ''"]
    offset_bytes: Annotated[int, "file offset of the probed instruction; 0 for tracepoints"]
    instruction: Annotated[str, "the instruction under the probe, disassembled; '' for tracepoints"]
    kind: Annotated[str, "uprobe, uretprobe (each also _multi), tp_btf, fexit or perf_event"]
    stepped: Annotated[int, "1 if the kernel must single-step the instruction, else 0"]
    hits_count: Annotated[
        int, "times it fired; of tp_btf, fexit and perf_event: while the kernel timed them"
    ]
    cost_ns: Annotated[float | None, "calibrated cost of one hit on this host; NULL = not known"]
    target_id: Annotated[int, "target that was probed"] = 1
    begun_count: Annotated[int, "phases that its hits began, without those that stay open"] = 0
    healed_count: Annotated[int, "those of them whose end was not seen"] = 0


class Calibration(NamedTuple):
    """Cost of one hit of a kind of probe on the host, measured on functions of tlstax."""

    kind: Annotated[str, "uprobe, uretprobe (each also _multi), tp_btf, fexit or perf_event"]
    instruction: Annotated[str, "what was probed: an instruction, a tracepoint, a sample"]
    cost_ns: Annotated[
        float, "median over the rounds; of a return probe with the trap that arms it"
    ]
    low_ns: Annotated[float, "lower end of the median's 95 % interval"]
    high_ns: Annotated[float, "upper end of the median's 95 % interval"]
    rounds_count: Annotated[int, "rounds"]
    cpus_count: Annotated[int, "CPUs on which it was hit at the same time"] = 1


class Run(NamedTuple):
    """One run of a driver: one arm in one round of an experiment."""

    run_id: Annotated[int, "key"]
    driver: Annotated[str, "load generator: pooled, storm, ..."]
    scenario: Annotated[str, "workload, for example oltp_point_select"]
    arm: Annotated[str, "plaintext or tls"]
    round: Annotated[int, "round of the interleaved experiment, from 0; arms of a round are paired"]
    start_ns: Annotated[int, "start of the driver"]
    end_ns: Annotated[int, "end of the driver"]
    threads_count: Annotated[int, "client threads"]
    connection_count: Annotated[int, "connections that the driver opened"]
    operation_count: Annotated[int, "operations that the driver finished"]
    client_mean_ns: Annotated[int, "mean latency of an operation, as the driver saw it"]
    client_p95_ns: Annotated[int, "95th percentile of the same"]
    client_max_ns: Annotated[int, "maximum of the same"]
    client_cpu_ns: Annotated[int, "CPU time, user and system, of the driver's process"]
    proof: Annotated[str, "JSON: the counters that prove what the arm did"]
    server_start: Annotated[
        int, "start of the server, from 0: runs with the same number share a process of it"
    ] = 0


class Window(NamedTuple):
    """A span of time of one target, whose rows were committed together.

    A span in which two targets were recorded is two windows with the same start and end, so every
    row that names a window also names its target. The host's rows belong to the server's window.
    """

    window_id: Annotated[int, "key"]
    run_id: Annotated[int | None, "run it belongs to; NULL outside of runs"]
    start_ns: Annotated[int, "start"]
    end_ns: Annotated[int, "end, exclusive"]
    target_id: Annotated[int, "target that its rows are about"] = 1
    level: Annotated[str, "which boundaries were probed in it, see Levels"] = "full"
    engine: Annotated[str, "what recorded it: native, perf, bpftrace, bcc or pmp"] = "native"


class Thread(NamedTuple):
    """A thread of a target."""

    thread_id: Annotated[int, "key; thread ids of the kernel are reused, this is not"]
    tid: Annotated[int, "thread id in the recording host's namespace"]
    name: Annotated[str, "name (comm) when last seen"]
    role: Annotated[str, "role when last seen, see Roles of a thread"]
    start_ns: Annotated[int, "birth, or start of the recording"]
    end_ns: Annotated[int | None, "end; NULL = alive when the recording ended"]
    target_id: Annotated[int, "target that the thread belongs to"] = 1


class Ledger(NamedTuple):
    """Exact time of a thread in one phase and state within a window."""

    window_id: Annotated[int, "window"]
    thread_id: Annotated[int, "thread"]
    phase: Annotated[str, "phase, see vocabulary"]
    state: Annotated[str, "state, see vocabulary"]
    time_ns: Annotated[int, "time spent there"]


class ThreadClock(NamedTuple):
    """The scheduler's own counts of a thread, to check the ledger's sums.

    They are read at the end of some windows, and where a thread ends: a row is about this window
    and those before it, `window_count` in all. Threads that used no CPU may have no row.
    """

    window_id: Annotated[int, "last window that it is about"]
    thread_id: Annotated[int, "thread"]
    lifetime_ns: Annotated[int, "life of the thread clipped to the windows"]
    sched_cpu_ns: Annotated[int | None, "CPU time by the scheduler; NULL = not read"]
    sched_wait_ns: Annotated[int | None, "run-queue wait by the scheduler; NULL = not read"]
    uncertain_ns: Annotated[int, "time between a missed probe and its repair (healing)"]
    healed_count: Annotated[int, "open phases that the stack pointer showed to have ended"]
    steal_ns: Annotated[int, "on-CPU time that the scheduler charges to no thread"] = 0
    handed_ns: Annotated[int, "on-CPU time that the scheduler charges to the next thread"] = 0
    window_count: Annotated[int, "windows that it is about, with consecutive ids"] = 1


class ProcessClock(NamedTuple):
    """What the kernel counted of a target, for checks of the ledger's sums.

    It is read at the end of some windows with a ledger: a row is about this window and those before
    it, `window_count` in all. Absent from captures before version 4.
    """

    window_id: Annotated[int, "last window that it is about"]
    process_cpu_ns: Annotated[int | None, "by the CPU clock of the process; NULL = not read"]
    account_cpu_ns: Annotated[int, "CPU time of threads that have an account, by the scheduler"]
    account_wait_ns: Annotated[
        int | None, "their time waiting for a CPU, by the scheduler; NULL = the kernel has no count"
    ]
    switch_count: Annotated[int, "switches of all threads, voluntary and involuntary"]
    seen_switch_count: Annotated[int, "switches that the ledger saw"]
    steal_ns: Annotated[int, "on-CPU time in the ledger that the scheduler charges to no thread"]
    thread_count: Annotated[int, "threads of the process at the end of the window"]
    account_count: Annotated[int, "those of them that have an account in the ledger"]
    untracked_count: Annotated[int, "those that found no room in the ledger"] = 0
    edges_ns: Annotated[int, "how long accounts and counts were read at both edges"] = 0
    handed_ns: Annotated[int, "on-CPU time that the scheduler charges to the next thread"] = 0
    window_count: Annotated[int, "windows that it is about, with consecutive ids"] = 1


class CpuClock(NamedTuple):
    """A CPU on which a target ran while it had a ledger; absent before version 4.

    A row is about the windows of the target's row of process_clock that ends with this window.
    """

    window_id: Annotated[int, "last window that it is about"]
    cpu_id: Annotated[int, "number of the CPU"]
    target_cpu_ns: Annotated[int, "its CPU time by the scheduler, with what that charged to others"]
    sample_count: Annotated[int, "CPU samples of the target on it"]


class PhaseCount(NamedTuple):
    """How many times a phase ended in a window."""

    window_id: Annotated[int, "window"]
    phase: Annotated[str, "phase"]
    ended_count: Annotated[int, "times it ended; below 0: so many of earlier windows had not"]


class Latency(NamedTuple):
    """A bucket of the wall-time histogram of a phase: log-linear, width <= 4 % of low_ns."""

    window_id: Annotated[int, "window"]
    phase: Annotated[str, "phase"]
    low_ns: Annotated[int, "lower bound, inclusive"]
    high_ns: Annotated[int, "upper bound, exclusive"]
    ended_count: Annotated[
        int, "times the phase took this long; below 0: so many of earlier windows had not ended"
    ]


class CommandPart(NamedTuple):
    """CPU time of a part of commands in a calibration stretch: a window at level flow.

    Probes of level record told it beside. Windows without rows are no stretches.
    """

    window_id: Annotated[int, "window"]
    phase: Annotated[str, "record_read, command (executing) or record_write"]
    on_cpu_ns: Annotated[int, "CPU time of all threads"]


class Handshake(NamedTuple):
    """One TLS handshake of one connection, followed by its SSL pointer."""

    handshake_id: Annotated[int, "key"]
    window_id: Annotated[int, "window in which it ended"]
    tid: Annotated[int, "thread that ended it"]
    start_ns: Annotated[int, "first accept or handshake call"]
    end_ns: Annotated[int, "success, failure or free"]
    on_cpu_ns: Annotated[int, "wall time spent on a CPU; -1 = not measured (no ledger was kept)"]
    runnable_ns: Annotated[int, "wall time spent waiting for a CPU; -1 = not measured"]
    blocked_network_ns: Annotated[int, "wall time spent waiting for the peer; -1 = not measured"]
    blocked_other_ns: Annotated[int, "wall time spent waiting for anything else; -1 = not measured"]
    sign_ns: Annotated[int, "wall time in the signature"]
    keygen_ns: Annotated[
        int, "wall time in ephemeral key generation; -1 = not measured (level signature)"
    ]
    derive_ns: Annotated[int, "wall time in shared-secret computation; -1 = not measured"]
    verify_ns: Annotated[int, "wall time in signature checks; -1 = not measured"]
    certificate_ns: Annotated[int, "wall time in certificate chain checks; -1 = not measured"]
    call_count: Annotated[int, "calls of the handshake function"]
    network_wait_count: Annotated[int, "waits for the peer, about one per flight"]
    outcome: Annotated[str, "success, failure or abandoned"]
    tls_version: Annotated[str, "for example TLSv1.3, or unknown"]
    cipher: Annotated[str, "cipher suite, or unknown"]
    group_name: Annotated[str, "key exchange group, or unknown"]
    resumed: Annotated[int | None, "1 resumed, 0 full, NULL not known"]
    side: Annotated[str, "side of the target: server, client or unknown"] = "unknown"
    client_network: Annotated[
        str,
        "first bits of the client's address, such as 192.0.2.0/24; unix; unknown; '' = not asked "
        "for, or the other end is no client",
    ] = ""


class Frame(NamedTuple):
    """A code address, resolved on the recording host."""

    frame_id: Annotated[int, "key"]
    object: Annotated[str, "file that contains it, or kernel"]
    build_id: Annotated[str, "GNU build-id in hex, or ''"]
    offset_bytes: Annotated[int, "offset in the file; 0 for the kernel, whose addresses are secret"]
    symbol: Annotated[str, "demangled name, or [object+0x...] if no symbol covers the address"]
    symbol_offset_bytes: Annotated[int, "distance from the start of the symbol"]
    source: Annotated[
        str,
        "symtab, dynsym, debugdata, debuglink, buildid, debuginfod, kallsyms, perf, pmp, bcc or "
        "none",
    ]
    code: Annotated[
        str, "what the function's instructions show: '' or aes, aes+ghash, sha, bignum, ..."
    ]


class Stack(NamedTuple):
    """A call stack."""

    stack_id: Annotated[int, "key"]
    frame_ids: Annotated[str, "frame ids, leaf first, separated by spaces"]


class InlinedFrame(NamedTuple):
    """A function that the compiler inlined at the address of a frame, by DWARF; since version 6.

    `tlstax symbolize` adds it. Categories and phases do not depend on it.
    """

    frame_id: Annotated[int, "frame, which names the function that contains the code"]
    outer_count: Annotated[int, "inlined functions of the frame around it; 0 = the outermost"]
    symbol: Annotated[str, "demangled name"]


class SampleStack(NamedTuple):
    """CPU samples with the same phase, system call and stacks."""

    window_id: Annotated[int, "window"]
    phase: Annotated[str, "phase of the thread when sampled"]
    syscall: Annotated[int, "system call number the thread was in; -1 = user mode"]
    user_stack_id: Annotated[int | None, "user stack; NULL = none"]
    kernel_stack_id: Annotated[int | None, "kernel stack; NULL = none"]
    sample_count: Annotated[int, "samples"]


class OffcpuStack(NamedTuple):
    """Waits with the same phase, state, system call and stacks: estimates; the ledger is exact."""

    window_id: Annotated[int, "window"]
    phase: Annotated[str, "phase of the thread"]
    state: Annotated[str, "state of the wait"]
    syscall: Annotated[int, "system call number; -1 = none"]
    user_stack_id: Annotated[int | None, "user stack; NULL = none"]
    kernel_stack_id: Annotated[int | None, "kernel stack; NULL = none"]
    wait_count: Annotated[int, "waits, weighted for sampling; 0 = not counted"]
    time_ns: Annotated[int, "time, weighted for sampling"]


class Primitive(NamedTuple):
    """A function of the TLS library that --functions requested."""

    primitive_id: Annotated[int, "key"]
    name: Annotated[str, "id of the primitive in probes/libraries"]
    category: Annotated[str, "category, see Categories of primitive"]
    unit: Annotated[str, "what one call works on: record, block or call"]
    function: Annotated[str, "symbol"]
    object: Annotated[str, "file that holds it"]
    build_id: Annotated[str, "GNU build-id of the object in hex, or ''"]
    size_source: Annotated[str, "where the bytes of a call are read; '' = not read"]
    inside_ns: Annotated[float, "what its probes add to its own time, calibrated; 0 if not timed"]
    pair_ns: Annotated[float, "what its probes add to the time of its caller, calibrated"]
    why_not_timed: Annotated[str, "why calls are only counted; '' = calls are timed"]
    target_id: Annotated[int, "target that the function belongs to"] = 1


class PrimitiveCalls(NamedTuple):
    """Calls of a primitive by phase and size: from low_bytes to high_bytes, 0 to 0 = not known.

    Times are as measured, including the cost of the probes, excluding time off the CPU.
    """

    window_id: Annotated[int, "window"]
    primitive_id: Annotated[int, "primitive"]
    phase: Annotated[str, "phase of the thread"]
    low_bytes: Annotated[int, "least bytes of a call, inclusive"]
    high_bytes: Annotated[int, "most bytes of a call, inclusive"]
    call_count: Annotated[int, "calls"]
    size_bytes: Annotated[int, "bytes of all calls"]
    timed_count: Annotated[int, "calls whose entry and exit were seen"]
    timed_bytes: Annotated[int, "bytes of these"]
    time_ns: Annotated[int, "time of these on the CPU, from entry to exit"]
    nested_ns: Annotated[int, "part of time_ns in primitives that they called, as measured there"]
    traps_ns: Annotated[int, "calibrated cost of all probes of primitives inside these calls"]
    direct_traps_ns: Annotated[
        int, "part of traps_ns from direct callees that nested_ns does not contain"
    ]


class PrimitiveTime(NamedTuple):
    """A bucket of the histogram of a primitive's times, as measured, over all phases."""

    window_id: Annotated[int, "window"]
    primitive_id: Annotated[int, "primitive"]
    low_bytes: Annotated[int, "least bytes of a call, inclusive"]
    high_bytes: Annotated[int, "most bytes of a call, inclusive"]
    low_ns: Annotated[int, "lower bound, inclusive"]
    high_ns: Annotated[int, "upper bound, exclusive"]
    call_count: Annotated[int, "calls that took this long"]


class System(NamedTuple):
    """The host and the collector itself over a window, all CPUs together."""

    window_id: Annotated[int, "window"]
    cpu_user_ns: Annotated[int, "user time of the host"]
    cpu_system_ns: Annotated[int, "system time of the host"]
    cpu_softirq_ns: Annotated[int, "interrupt and softirq time of the host"]
    cpu_steal_ns: Annotated[int, "time taken by the hypervisor"]
    cpu_idle_ns: Annotated[int, "idle time of the host, with I/O wait"]
    engine_cpu_ns: Annotated[int, "CPU time of tlstax itself"]
    engine_rss_bytes: Annotated[int, "resident memory of tlstax at the end of the window"]
    quota_period_count: Annotated[
        int, "periods of the CPU quota (CFS) of the server; 0 = none, or not read; since version 5"
    ] = 0
    throttled_period_count: Annotated[int, "those of them in which a quota was used up"] = 0
    delayed_ack_count: Annotated[
        int | None, "delayed TCP acknowledgements in the server's network; NULL = not read"
    ] = None
    listen_drop_count: Annotated[
        int | None,
        "connections that a full queue of new ones refused, in the server's network; NULL = not "
        "read; since version 7",
    ] = None


class Effect(NamedTuple):
    """Overhead in a window: events, times their cost on this host.

    The collector's own CPU time is `system.engine_cpu_ns`.
    """

    window_id: Annotated[int, "window"]
    target_cpu_ns: Annotated[
        int | None, "CPU time of the target with its ended threads; NULL = not known"
    ]
    probe_ns: Annotated[int | None, "probe hits times their cost; NULL = not known"]
    scheduler_ns: Annotated[
        int | None, "programs at its scheduler and socket events; NULL = not known"
    ]
    sample_ns: Annotated[int | None, "programs at CPU samples; NULL = not known"]
    neighbour_ns: Annotated[
        int | None,
        "the same programs at scheduler and socket events of other processes; NULL = it is in "
        "`scheduler_ns`; since version 11",
    ] = None

    @property
    def costs_ns(self) -> tuple[int, int, int, int]:
        """Of probes, its events, other processes' events and samples; 0 for what is not known."""
        causes = (self.probe_ns, self.scheduler_ns, self.neighbour_ns, self.sample_ns)
        probe_ns, scheduler_ns, neighbour_ns, sample_ns = (value or 0 for value in causes)
        return probe_ns, scheduler_ns, neighbour_ns, sample_ns


class Status(NamedTuple):
    """A counter of the server at an instant."""

    time_ns: Annotated[int, "when it was read"]
    run_id: Annotated[int | None, "run; NULL outside of runs"]
    name: Annotated[str, "name of the counter, as the server spells it"]
    value: Annotated[str, "its value as the server printed it"]


class Collector(NamedTuple):
    """A source of evidence in addition to the native engine, and its state."""

    collector_id: Annotated[int, "key"]
    name: Annotated[str, "procfs, iostat, status, perf, ..."]
    version: Annotated[str, "program or server that answered, with its version; '' = none"]
    state: Annotated[str, "running, finished, failed (ended early or unreadable output) or missing"]
    start_ns: Annotated[int, "start"]
    end_ns: Annotated[int, "end; the start while it runs"]
    rows_count: Annotated[int, "rows that it produced"]
    note: Annotated[str, "why it failed or is missing, and what to do; '' otherwise"]


class Metric(NamedTuple):
    """A reading of the host over the interval that ends at its time."""

    time_ns: Annotated[int, "end of the interval"]
    interval_ns: Annotated[int, "length of the interval"]
    source: Annotated[str, "collector that read it"]
    object: Annotated[str, "device, cpu, process or another thing that was read"]
    name: Annotated[str, "what was read, with its unit as suffix"]
    value: Annotated[float, "its value; of a counter, the growth in the interval"]


class SourceFacts(NamedTuple):
    """What a source declares about itself; absent from captures before version 3."""

    key: Annotated[str, "its name in --collect; a collector has this name, alone or with a part"]
    summary: Annotated[str, "what it reads, in a few words"]
    cost_counted: Annotated[
        int, "0 if it slows the server down and this is not in the reported overhead, else 1"
    ]
    alone: Annotated[str, "note for a report whose windows this engine recorded; '' = none"]


class Series(NamedTuple):
    """One line of a chart that a report draws of a source's readings, as the source declares it.

    `*` in `object` or in `counters` matches any text, which replaces `*` in title and label. Absent
    from captures before version 3.
    """

    key: Annotated[str, "source, panel and label"]
    source: Annotated[str, "source whose readings are drawn"]
    panel: Annotated[str, "chart that the line belongs to; with * one chart for each object"]
    title: Annotated[str, "title of the chart"]
    unit: Annotated[str, "unit of the chart, see Units of a series"]
    object: Annotated[str, "`object` of its metrics; '' for the table status"]
    label: Annotated[str, "name of the line; with * one line for each object or counter"]
    how: Annotated[str, "how it is computed from the counters, see Kinds of a series"]
    counters: Annotated[str, "`name` of its metrics, one per line of text"]
    scale: Annotated[float, "factor for the values"]


class Gap(NamedTuple):
    """What was unavailable for a target, and what the result lacks without it."""

    target_id: Annotated[int, "target that it is about"]
    subject: Annotated[str, "what is missing: a boundary, a field, names in a file, a process"]
    consequence: Annotated[str, "what the result lacks without it, as sentences"]


class Loss(NamedTuple):
    """Data that was lost or repaired, counted."""

    window_id: Annotated[int, "window"]
    kind: Annotated[str, "kind of loss, see vocabulary"]
    lost_count: Annotated[int, "times"]


Row = (
    Meta
    | Target
    | Probe
    | Calibration
    | Run
    | Window
    | Thread
    | Ledger
    | ThreadClock
    | ProcessClock
    | CpuClock
    | PhaseCount
    | Latency
    | CommandPart
    | Handshake
    | Frame
    | Stack
    | InlinedFrame
    | SampleStack
    | OffcpuStack
    | Primitive
    | PrimitiveCalls
    | PrimitiveTime
    | System
    | Effect
    | Status
    | Collector
    | Metric
    | SourceFacts
    | Series
    | Gap
    | Loss
)
TABLES: Final[tuple[type[Row], ...]] = get_args(Row)
ADDED: Final[frozenset[type[Row]]] = frozenset(
    {
        *(Effect, Collector, Metric, Primitive, PrimitiveCalls, PrimitiveTime, Gap, Calibration),
        *(SourceFacts, Series, ProcessClock, CpuClock, InlinedFrame, CommandPart),
    }
)
"""Tables that version 1 did not have."""
KEYED: Final[frozenset[type[Row]]] = frozenset(
    {
        *(Meta, Target, Probe, Run, Window, Thread, Handshake, Frame, Stack, Collector, Primitive),
        *(SourceFacts, Series),
    }
)
"""Tables whose first column is a key: a later row replaces the earlier one."""


class Column(NamedTuple):
    """A column as SQL and the documentation need it."""

    name: str
    kind: type[int] | type[float] | type[str]
    nullable: bool
    doc: str


_SQL_TYPES: Final[Mapping[type, str]] = {int: "INTEGER", float: "REAL", str: "TEXT"}


def table_name(table: type[Any]) -> str:
    """The SQL name of a table: `ThreadClock` is `thread_clock`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", table.__name__).lower()


def annotated_fields(table: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """The fields of a NamedTuple with `Annotated[type, doc]` hints: name, type and doc."""
    hints = get_type_hints(table, include_extras=True)
    for name in table._fields:
        annotated, doc = get_args(hints[name])
        yield name, annotated, doc


def columns(table: type[Any]) -> tuple[Column, ...]:
    """The columns of a table in order."""
    found = []
    for name, annotated, doc in annotated_fields(table):
        nullable = get_origin(annotated) is types.UnionType
        kind = get_args(annotated)[0] if nullable else annotated
        found.append(Column(name, kind, nullable, doc))
    return tuple(found)


def create_table(table: type[Any], present: Collection[str] | None = None) -> str:
    """The CREATE TABLE statement of a table, with all of its columns or those of an older file."""
    lines: list[str] = []
    for column in columns(table):
        if present is not None and column.name not in present:
            continue
        constraint = "" if column.nullable else " NOT NULL"
        if table in KEYED and not lines:
            constraint += " PRIMARY KEY"
        lines.append(f'  "{column.name}" {_SQL_TYPES[column.kind]}{constraint}')
    return f'CREATE TABLE "{table_name(table)}" (\n' + ",\n".join(lines) + "\n)"


def insert_row(table: type[Any]) -> str:
    """The INSERT statement of a table, with one placeholder for each column."""
    verb = "INSERT OR REPLACE" if table in KEYED else "INSERT"
    marks = ", ".join("?" * len(table._fields))
    return f'{verb} INTO "{table_name(table)}" VALUES ({marks})'

# SPDX-License-Identifier: GPL-2.0-only
"""The tables of the data set: the only definition.

Parquet schemas, docs/fleet-columns.md and docs/fleet-clickhouse.sql are generated from it. Each
NamedTuple is one table (snake case of the class name); its fields are the columns in order.
Integers are 64-bit signed. Each number has its unit as suffix: `_wall_ns` is a time in ns since
1970 (UTC), `_ns` a duration, `_count` a number of things.

Sums are of what was seen. A recording with a budget looks part of the time, so a rate divides by
the observed time and a total of several hosts is scaled by `recorded_ns / observed_ns` of its
interval: else a host that was watched all the time counts for more than the others.

A column added after version 1 stands at the end and has a default, 0 or '': that of earlier files.
"""

from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from tlstax.collectors.capture.schema import annotated_fields, table_name

SCHEMA_VERSION: Final = 2
"""Of these tables, in each file; a newer one is refused by name. Version 2 has `partial_ns` and
`partial_count`; some files of version 1 have them, too."""
TIERS: Final = {"10s": 10, "1m": 60, "1h": 3600}
"""Length of an interval in seconds, by the name of its tier."""
HOUR_NS: Final = 3_600_000_000_000
DAY_NS: Final = 24 * HOUR_NS
SECOND_NS: Final = 1_000_000_000
NETWORKS_MOST: Final = 10
"""Networks of an interval that have rows of their own in `client_net`."""
OTHERS: Final = "others"
"""The network of all others."""
WALL: Final = "handshake_wall"
"""The phase of whole handshakes in `phase_latency`."""

_Host = Annotated[str, "name of the host, as recorded or as given with --host"]
_Start = Annotated[int, "start of the interval"]
_Source = Annotated[int, "recording that the row is from"]


class Host(NamedTuple):
    """Facts about a host and its server, one row for each recording and hour.

    A host has one version of its facts until they change: compare rows in order of time.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    cluster: Annotated[str, "cluster, as given with --cluster, or ''"]
    server: Annotated[str, "mariadb, mysql, percona or unknown"]
    server_version: Annotated[str, "version of the server"]
    build_id: Annotated[str, "GNU build-id of the server's executable, or ''"]
    tls_library: Annotated[str, "TLS library with its version"]
    tls_linkage: Annotated[str, "shared, static or unknown"]
    kernel: Annotated[str, "kernel release"]
    cpu_model: Annotated[str, "model name of the CPU"]
    cpu_count: Annotated[int, "CPUs online; 0 = unknown"]
    level: Annotated[str, "highest level that was probed, for however short a time"]
    tlstax_version: Annotated[str, "version of tlstax that recorded"]
    first_wall_ns: Annotated[int, "start of the recording's first window in this hour"]


class Interval(NamedTuple):
    """A host in one interval: what was observed, and the sums that most questions need.

    A file of this table is written last: a host and hour without it is not complete, and no
    question of tlstax counts it.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    recorded_ns: Annotated[int, "recorded time, with stretches that only samples or nothing saw"]
    ledger_observed_ns: Annotated[int, "part of it in which the ledger was kept"]
    handshake_observed_ns: Annotated[int, "part of it in which handshakes were recorded"]
    served_ns: Annotated[int, "time of threads that serve connections, all states, without idle"]
    on_cpu_ns: Annotated[int, "part of served_ns on a CPU"]
    runnable_ns: Annotated[int, "part of served_ns waiting for a CPU"]
    handshake_cpu_ns: Annotated[int, "part of on_cpu_ns in handshakes and their sub-phases: exact"]
    sign_cpu_ns: Annotated[int, "part of handshake_cpu_ns in the private-key signature: exact"]
    record_crypto_ns: Annotated[
        int, "part of on_cpu_ns encrypting and framing records: split by CPU samples"
    ]
    connection_count: Annotated[int, "connections that were set up"]
    command_count: Annotated[int, "commands that ended"]
    handshake_count: Annotated[int, "handshakes that ended, with any outcome"]
    full_count: Annotated[int, "successful handshakes that were not resumed"]
    resumed_count: Annotated[int, "successful handshakes that were resumed"]
    failed_count: Annotated[int, "handshakes that failed or were abandoned"]
    process_cpu_ns: Annotated[int, "CPU time of the server by its process clock; 0 = not read"]
    engine_cpu_ns: Annotated[int, "CPU time of tlstax itself"]
    overhead_ns: Annotated[int, "calibrated cost of probes, scheduler events and samples"]
    sample_count: Annotated[int, "CPU samples"]
    lost_count: Annotated[int, "losses of all kinds that were not repaired, see table loss"]
    record_observed_ns: Annotated[
        int,
        "part of recorded_ns in which records were boundaries, and samples split their CPU time",
    ]
    partial_ns: Annotated[int, "part of handshake_observed_ns with signatures alone"] = 0


class Ledger(NamedTuple):
    """Exact time by role, phase and state, as observed. A state that did not occur is 0.

    In the tier 10s all threads that serve no connection have the role background. In the tiers 10s
    and 1m up to 255 ns of a time may be counted in a later interval of the same hour: its sum over
    the hour is exact.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    role: Annotated[str, "role of the thread, see capture.md"]
    phase: Annotated[str, "phase, see capture.md"]
    on_cpu_ns: Annotated[int, "on a CPU"]
    runnable_ns: Annotated[int, "waiting for a CPU"]
    blocked_network_ns: Annotated[int, "waiting for a socket"]
    blocked_disk_ns: Annotated[int, "waiting for a block device or a file"]
    blocked_lock_ns: Annotated[int, "waiting for a lock that the server names"]
    blocked_futex_ns: Annotated[int, "waiting on a futex whose purpose is unknown"]
    blocked_other_ns: Annotated[int, "waiting for anything else"]


class Handshake(NamedTuple):
    """Handshakes of one kind; times are sums over the successful ones.

    Waits are known of `split_count` of them, sign_ns of all, the other four parts of all but
    `partial_count`. In the tiers 10s and 1m up to 255 ns of a time may be counted in a later
    interval of the same hour, as in the ledger.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    outcome: Annotated[str, "success, failure or abandoned"]
    tls_version: Annotated[str, "for example TLSv1.3, or unknown"]
    cipher: Annotated[str, "cipher suite, or unknown"]
    group_name: Annotated[str, "key exchange group, or unknown"]
    resumption: Annotated[str, "full, resumed or unknown"]
    handshake_count: Annotated[int, "handshakes"]
    wall_ns: Annotated[int, "wall time"]
    split_count: Annotated[int, "handshakes whose waits were measured"]
    on_cpu_ns: Annotated[int, "on a CPU, of these"]
    runnable_ns: Annotated[int, "waiting for a CPU, of these"]
    blocked_network_ns: Annotated[int, "waiting for the peer, of these"]
    blocked_other_ns: Annotated[int, "waiting for anything else, of these"]
    sign_ns: Annotated[int, "wall time in the signature"]
    keygen_ns: Annotated[int, "wall time in ephemeral key generation"]
    derive_ns: Annotated[int, "wall time in shared-secret computation"]
    verify_ns: Annotated[int, "wall time in signature checks"]
    certificate_ns: Annotated[int, "wall time in certificate chain checks"]
    partial_count: Annotated[int, "successful handshakes with sign_ns alone"] = 0


class PhaseLatency(NamedTuple):
    """Wall times of a phase as a base-2 exponential histogram, the form that OTLP defines.

    `counts` are the counts of neighbouring buckets; the first has index `first_bucket`. Bucket i
    holds times above 2^(i / 2^scale) ns and up to 2^((i + 1) / 2^scale) ns. Histograms of one scale
    are added bucket by bucket, exactly. The scale is {scale} in every row: a bucket ends 19 % above
    its start. The tiers 10s and 1m have handshake_wall and command only.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    phase: Annotated[str, "phase, see capture.md; handshake_wall for whole handshakes"]
    ended_count: Annotated[int, "times that it ended, with and without a bucket"]
    scale: Annotated[int, "scale of the histogram"]
    first_bucket: Annotated[int, "index of the first count"]
    counts: Annotated[list[int], "counts of the buckets in order"]


class Loss(NamedTuple):
    """Data that was lost or repaired."""

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    kind: Annotated[str, "kind of loss, see capture.md"]
    lost_count: Annotated[int, "times"]


class ClientNet(NamedTuple):
    """TLS handshakes by network of the client, only where --client-networks asked for it.

    An address, even its first bits, may be personal data. Of each interval the 10 networks
    with the most handshakes have a row, all others together have one: `others`.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    network: Annotated[
        str,
        "address prefix of the clients, such as 192.0.2.0/24; unix, unknown (the socket was not "
        "seen), or others",
    ]
    connection_count: Annotated[int, "TLS connections: their handshakes, with any outcome"]
    full_count: Annotated[int, "successful handshakes that were not resumed"]
    resumed_count: Annotated[int, "successful handshakes that were resumed"]
    failed_count: Annotated[int, "handshakes that failed or were abandoned"]


class RecordSplit(NamedTuple):
    """An estimate: how much of the commands of level `flow` was encrypting and framing records.

    By CPU samples: of a whole recording, or of an hour of a watch, with 1,000 samples of commands
    or more. It is in `record_crypto_ns` of its intervals, too; what was split at boundaries of
    records has no row here.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    command_cpu_ns: Annotated[int, "CPU time of commands that was split"]
    record_crypto_ns: Annotated[int, "part of it: the estimate"]
    low_ns: Annotated[int, "lower end of its 95 % interval, or of the range of few samples"]
    high_ns: Annotated[int, "upper end"]
    sample_count: Annotated[int, "CPU samples of commands"]
    record_sample_count: Annotated[int, "those of them in record crypto"]


class Finding(NamedTuple):
    """A cause that a recording shows, in the hour in which the recording began."""

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    finding: Annotated[str, "id of the rule, see findings.md"]
    workload: Annotated[str, "driver/scenario/arm of an experiment, else all"]
    share: Annotated[float, "share of the time that the server spent on connections"]
    size_ns: Annotated[float, "time of it per operation"]
    sentence: Annotated[str, "the finding in one sentence"]


class Stacks(NamedTuple):
    """Time by phase and stack: the 12 largest of each phase, and the rest of it in one row.

    Times are the ledger's, split by samples or by stacks of waits, as observed.
    """

    host: _Host
    start_wall_ns: _Start
    source_id: _Source
    kind: Annotated[str, "on_cpu or off_cpu"]
    phase: Annotated[str, "phase"]
    state: Annotated[str, "state of the wait; on_cpu for CPU time"]
    category: Annotated[
        str, "category of the CPU time, see capture.md; '' of waits and of the rest"
    ]
    syscall: Annotated[int, "system call number; -1 = none"]
    user_stack_id: Annotated[int, "user stack; 0 = none"]
    kernel_stack_id: Annotated[int, "kernel stack; 0 = none"]
    time_ns: Annotated[int, "time"]
    sample_count: Annotated[int, "samples, or waits, behind it"]


class Stack(NamedTuple):
    """A stack, by the hash of its frames: equal on all hosts with the same builds."""

    stack_id: Annotated[int, "hash of frame_ids"]
    start_wall_ns: Annotated[
        int, "start of the hour of a row of `stacks` that refers to it: the first of a day"
    ]
    frame_ids: Annotated[list[int], "frames, leaf first"]


class Frame(NamedTuple):
    """A place in code, by the hash of (build-id, offset).

    A frame of the kernel is known by its symbol alone (its addresses are secret), a frame of a file
    without build-id by the name of the file and the symbol.
    """

    frame_id: Annotated[int, "hash of what identifies the frame"]
    start_wall_ns: Annotated[
        int, "start of the hour of a row of `stacks` that leads to it: the first of a day"
    ]
    build_id: Annotated[str, "GNU build-id in hex; '' for the kernel"]
    offset_bytes: Annotated[int, "offset in the file; 0 for the kernel"]
    object: Annotated[str, "file, or kernel"]
    symbol: Annotated[str, "demangled name when it was recorded"]
    code: Annotated[str, "what the function's instructions show: '' or aes, sha, bignum, ..."]


Row = (
    Host
    | Interval
    | Ledger
    | Handshake
    | PhaseLatency
    | Loss
    | ClientNet
    | RecordSplit
    | Finding
    | Stacks
    | Stack
    | Frame
)
TABLES: Final[tuple[type[Row], ...]] = get_args(Row)
HOURLY: Final[frozenset[type[Row]]] = frozenset({Host, RecordSplit, Finding, Stacks, Stack, Frame})
"""Tables of the tier 1h only."""
SHARED: Final[frozenset[type[Row]]] = frozenset({Stack, Frame})
"""Tables whose rows belong to no host: the same row may come from several recordings."""


class Column(NamedTuple):
    """A column as Parquet, SQL and the documentation need it."""

    name: str
    kind: str
    """int, float, str or list (of int)."""
    doc: str


BY_NAME: Final = {table_name(table): table for table in TABLES}


def columns(table: type[Any]) -> tuple[Column, ...]:
    """The columns of a table in order."""
    return _COLUMNS[table]


def _columns(table: type[Any]) -> tuple[Column, ...]:
    return tuple(
        Column(name, "list" if get_origin(kind) is list else kind.__name__, doc)
        for name, kind, doc in annotated_fields(table)
    )


_COLUMNS: Final = {table: _columns(table) for table in TABLES}


def keys(table: type[Any]) -> tuple[str, ...]:
    """The columns that say what a row is about; the others are sums or texts."""
    if table in SHARED or table is Host:
        return (columns(table)[0].name,)
    if table is PhaseLatency:
        return ("host", "start_wall_ns", "source_id", "phase", "scale")
    if table is Finding:
        return ("host", "start_wall_ns", "source_id", "finding", "workload")
    texts = (column.name for column in columns(table) if column.kind == "str")
    numbers = ("start_wall_ns", "source_id", "syscall", "user_stack_id", "kernel_stack_id")
    return (*texts, *(name for name in numbers if name in table._fields))


def tiers_of(table: type[Any]) -> tuple[str, ...]:
    """The tiers in which a table has files."""
    return ("1h",) if table in HOURLY else tuple(TIERS)

# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part two: its tables and pictures."""

from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

Estimate = Annotated[str, "how it was scaled up; '' if everything was measured"]
Interval = Annotated[
    float | None, "bound: of the 95 % interval, or of the range of fewer than 8 units; or null"
]
UnitCount = Annotated[
    int | None,
    "rounds, server starts or blocks of windows behind the bounds: below 8 they are a range; "
    "null: not by units",
]

PValue = Annotated[
    float | None,
    "how likely noise alone makes such a difference; null where there are fewer than 8 units",
]


@dataclass(frozen=True)
class Measure:
    """A time with its bounds: the median of rounds or blocks, if it is not called a mean."""

    value_ns: Annotated[float, "estimate"]
    low_ns: Interval = None
    high_ns: Interval = None
    unit_count: UnitCount = None
    smallest_ns: Annotated[
        float | None,
        "of a difference: the smallest that would be seen in four of five repetitions; null else",
    ] = None


@dataclass(frozen=True)
class Ratio:
    """A number without unit, with its bounds."""

    value: Annotated[float, "estimate"]
    low: Interval = None
    high: Interval = None
    unit_count: UnitCount = None


@dataclass(frozen=True)
class WaterfallStep:
    """One step of the waterfall: time per operation, plaintext and TLS."""

    name: Annotated[str, "stable id, for example handshake_sign"]
    label: Annotated[str, "what it is, for people"]
    group: Annotated[str, "handshake, record, server, waiting, client or unexplained"]
    basis: Annotated[str, "exact (ledger), sampled (ledger split by samples) or client (driver)"]
    description: Annotated[str, "what is counted in it"]
    plaintext_ns: Annotated[float, "per operation in the plaintext arm, median"]
    tls_ns: Annotated[float, "per operation in the TLS arm, median"]
    difference: Annotated[Measure, "TLS less plaintext, per operation"]
    share: Annotated[float | None, "difference / total difference; null unless TLS takes longer"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    start_ns: Annotated[float, "where its bar starts in the waterfall"]
    end_ns: Annotated[float, "where its bar ends"]
    sample_count: Annotated[int | None, "samples behind the TLS arm; null: none needed"] = None
    p_value: PValue = None


@dataclass(frozen=True)
class CpuCost:
    """CPU time of the server for one operation, by arm."""

    plaintext: Annotated[Measure, "in the plaintext arm"]
    tls: Annotated[Measure, "in the TLS arm"]
    difference: Annotated[Measure, "TLS less plaintext"]
    ratio: Annotated[Ratio, "TLS / plaintext"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]


@dataclass(frozen=True)
class Cause:
    """Several steps of a waterfall under one name, as a sentence names them."""

    label: Annotated[str, "what it is, for people"]
    steps: Annotated[list[str], "its steps, of those whose difference is beyond doubt"]
    difference: Annotated[Measure, "their sum, TLS less plaintext, per operation"]
    share: Annotated[Ratio, "difference / total difference of the latency"]


@dataclass(frozen=True)
class Comparison:
    """Plaintext against TLS for one driver and scenario, per operation."""

    name: Annotated[str, "stable id: driver/scenario"]
    driver: Annotated[str, "driver"]
    scenario: Annotated[str, "scenario"]
    operation: Annotated[str, "what one operation is: connection, transaction, query"]
    refusal: Annotated[str | None, "why the arms cannot be compared; then all below is empty"]
    sentence: Annotated[str, "the result in one sentence"]
    note: Annotated[str, "how the intervals were computed, and their limits"]
    round_count: Annotated[int, "paired rounds"]
    operation_counts: Annotated[dict[str, int], "operations by arm"]
    latency: Annotated[
        dict[str, Measure], "latency of an operation at the client by arm: median of rounds' means"
    ]
    throughput_per_second: Annotated[
        dict[str, Ratio], "operations per second by arm: median of the rounds"
    ]
    difference: Annotated[Measure | None, "latency, TLS less plaintext"]
    ratio: Annotated[Ratio | None, "latency, TLS / plaintext"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    cells: Annotated[
        list[WaterfallStep], "waterfall; with unexplained (last) they sum to the difference"
    ]
    beside: Annotated[
        list[WaterfallStep], "costs that the client does not wait for; not part of the sum"
    ]
    unexplained: Annotated[dict[str, Measure], "latency that no step explains, by arm"] = field(
        default_factory=dict
    )
    server_cpu: Annotated[CpuCost | None, "what the server's CPUs paid, waits excluded"] = None
    causes: Annotated[list[Cause], "firm parts of the latency's difference, largest first"] = field(
        default_factory=list
    )
    start_count: Annotated[
        int, "server starts with these rounds; from 2 on, starts are units, not rounds"
    ] = 1


@dataclass(frozen=True)
class LedgerSegment:
    """Exact time in one phase and state."""

    phase: Annotated[str, "phase"]
    state: Annotated[str, "state"]
    time_ns: Annotated[int, "time"]
    share: Annotated[float, "of the bar's total_ns"]
    per_operation_ns: Annotated[float | None, "per operation; null without operations"]
    low_ns: Interval = None
    high_ns: Interval = None
    unit_count: UnitCount = None


@dataclass(frozen=True)
class RoleLine:
    """Time of the threads of one role: all phases; the states exclude the idle phase."""

    role: Annotated[str, "role, see the capture's vocabulary; untracked: not in the ledger"]
    meaning: Annotated[str, "what such threads do"]
    thread_count: Annotated[int, "threads of the role"]
    on_cpu_ns: Annotated[int, "on a CPU"]
    tls_ns: Annotated[int, "part of on_cpu_ns in handshakes and records"]
    runnable_ns: Annotated[int, "waiting for a CPU"]
    blocked_ns: Annotated[dict[str, int], "waiting, by state"]
    idle_ns: Annotated[int, "the idle phase, in any state"]


@dataclass(frozen=True)
class LedgerBar:
    """Time of the connection threads in one arm, excluding idle."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    driver: Annotated[str, "driver, or ''"]
    scenario: Annotated[str, "scenario, or ''"]
    arm: Annotated[str, "plaintext, tls, or ''"]
    operation: Annotated[str, "what one operation is, or ''"]
    operation_count: Annotated[int, "operations; 0 without a driver"]
    total_ns: Annotated[int | None, "sum of the segments; null = not measured"]
    idle_ns: Annotated[int | None, "idle time, not in the segments; null = not measured"]
    background_ns: Annotated[int | None, "time of background threads; null = not measured"]
    unknown_ns: Annotated[
        int | None, "unclassified: time before a thread's first boundary; null = not measured"
    ]
    segments: Annotated[list[LedgerSegment], "by phase, then state, in vocabulary order"]
    estimate: Estimate = ""
    measured_ns: Annotated[int, "time in which the ledger was kept"] = 0
    whole_ns: Annotated[int, "recorded time that the bar covers"] = 0
    roles: Annotated[list[RoleLine], "by role, busiest first; last those not in the ledger"] = (
        field(default_factory=list)
    )


@dataclass(frozen=True)
class Quantile:
    """A quantile and the bucket that contains it."""

    q: Annotated[float, "0..1"]
    value_ns: Annotated[float, "estimate"]
    low_ns: Annotated[float, "lower bound of the bucket"]
    high_ns: Annotated[float, "upper bound of the bucket"]
    sampling: Annotated[
        Measure | None, "95 % interval over 8 rounds or blocks, or more, of the merged histogram"
    ] = None
    at_least: Annotated[bool, "a lower bound, because of values that are not complete"] = False


@dataclass(frozen=True)
class Bucket:
    """A bar of a histogram."""

    low_ns: Annotated[float, "from, inclusive"]
    high_ns: Annotated[float, "to, exclusive"]
    count: Annotated[int, "how many"]
    cumulative: Annotated[float, "share at or below high_ns: the CDF"]


@dataclass(frozen=True)
class Distribution:
    """A latency distribution."""

    name: Annotated[str, "stable id"]
    label: Annotated[str, "for people"]
    phase: Annotated[str, "phase, or handshake_wall for handshake records"]
    count: Annotated[int, "values"]
    mean_ns: Annotated[float | None, "mean; null without values"]
    quantiles: Annotated[list[Quantile], "p50 p90 p95 p99 (each only with enough values) and max"]
    buckets: Annotated[list[Bucket], "without empty buckets"]
    estimate: Estimate = ""
    unfinished_count: Annotated[
        int,
        "values that are not in `count` because they began before the recording or ended after it; "
        "mean and quantiles count what they lasted at least",
    ] = 0
    unfinished_ns: Annotated[float | None, "what the longest of these lasted at least"] = None


@dataclass(frozen=True)
class HandshakePart:
    """A part of the mean handshake."""

    name: Annotated[str, "sign, keygen, derive, verify, certificate, other_cpu, runnable, ..."]
    label: Annotated[str, "for people"]
    mean: Annotated[Measure, "per handshake"]
    share: Annotated[float, "of the mean wall time"]


@dataclass(frozen=True)
class HandshakeLanePart:
    """A part of a lane. Its duration was measured, its position was not: see `lanes_note`."""

    name: Annotated[str, "sign, keygen, blocked_network, ..., as in HandshakePart"]
    label: Annotated[str, "for people"]
    time_ns: Annotated[float, "total duration"]
    start_ns: Annotated[float, "start of its bar in the lane"]
    end_ns: Annotated[float, "end of its bar"]


@dataclass(frozen=True)
class HandshakeLane:
    """A handshake on one side of the connection: one record, or the mean of several."""

    name: Annotated[str, "server_median, server_slowest, server_mean or client_mean"]
    label: Annotated[str, "for people"]
    side: Annotated[str, "server or client"]
    count: Annotated[int, "records: 1, or the number behind the mean"]
    wall_ns: Annotated[float, "wall time"]
    parts: Annotated[list[HandshakeLanePart], "in the protocol's usual order"]


@dataclass(frozen=True)
class HandshakeTask:
    """Part of a handshake's other computing: the work below one function of the TLS library."""

    function: Annotated[str, "outermost function below the server's own and the protocol's"]
    category: Annotated[str, "its category; '' if nobody is known"]
    time_ns: Annotated[float, "share x mean other computing of a handshake"]
    share: Annotated[float, "of other computing"]
    low: Interval
    high: Interval
    sample_count: Annotated[int, "samples in it"]
    unit_count: UnitCount = None


@dataclass(frozen=True)
class HandshakeTable:
    """The handshakes of one driver: wall time of each connection's handshake."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    count: Annotated[int, "records"]
    outcomes: Annotated[dict[str, int], "by outcome"]
    versions: Annotated[dict[str, int], "by TLS version, most frequent first"]
    ciphers: Annotated[dict[str, int], "by cipher suite"]
    groups: Annotated[dict[str, int], "by key exchange group"]
    resumptions: Annotated[dict[str, int], "full, resumed, unknown"]
    mean: Annotated[Measure | None, "mean wall time of the successful ones"]
    call_count: Annotated[float | None, "calls per handshake, mean"]
    network_wait_count: Annotated[float | None, "waits for the peer per handshake, mean"]
    parts: Annotated[list[HandshakePart], "split of the mean; the parts sum to it"]
    distribution: Annotated[Distribution, "wall time of the successful ones"]
    parts_count: Annotated[int, "handshakes behind the parts"] = 0
    estimate: Estimate = ""
    estimated_count: Annotated[
        Ratio | None, "estimated number of all handshakes; null if all were recorded"
    ] = None
    lanes: Annotated[list[HandshakeLane], "the median and the slowest handshake, and the means"] = (
        field(default_factory=list)
    )
    lanes_note: Annotated[str, "limits of the lanes; '' without lanes"] = ""
    other_tasks: Annotated[
        list[HandshakeTask],
        "other computing by what the handshake did, from samples",
    ] = field(default_factory=list)


class FlameNode(TypedDict):
    """A frame of a flame graph, in the format of d3-flame-graph."""

    name: str
    value: float
    category: str
    children: list["FlameNode"]
    repaired: NotRequired[float]
    """Part of the value whose callers come from perf's stacks; absent if none."""
    inlined: NotRequired[bool]
    """The compiler inlined it into the frame before it; absent if not."""


@dataclass(frozen=True)
class FlameGraph:
    """Folded stacks of one arm, with the phase as the first frame."""

    name: Annotated[str, "stable id: driver/scenario/arm/kind, or all/kind"]
    label: Annotated[str, "for people"]
    kind: Annotated[str, "on_cpu or off_cpu"]
    total_ns: Annotated[float, "value of the root: exact time by the ledger"]
    sample_count: Annotated[int, "samples, or waits, behind it"]
    dropped_ns: Annotated[float, "time in frames too small to keep, shown as '(small)'"]
    root: Annotated[FlameNode, "tree; value in ns, own time included"]
    estimate: Estimate = ""
    broken_count: Annotated[int, "samples with an incomplete stack; 0 if perf did not run"] = 0
    repaired_count: Annotated[
        int, "those of them that got their callers from perf's DWARF stacks"
    ] = 0
    repaired_share: Annotated[float | None, "repaired of all samples; null without perf"] = None
    repair: Annotated[str, "the repair in one sentence; '' without perf"] = ""

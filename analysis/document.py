# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report: everything that renderers print, computed once.

`tlstax.analysis.explain.explain` builds a `Document` from a capture, `to_json` turns it into
plain dictionaries and lists. Renderers compute nothing: each number they show is in here, in
nanoseconds, and each sentence too. Lists are in the order in which they should be shown.
docs/report-json.md is generated from this file.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

DOCUMENT_VERSION: Final = 1

Interval = Annotated[float | None, "bound of the 95 % interval, or null where there is none"]


@dataclass(frozen=True)
class Measure:
    """A time with its 95 % interval."""

    value_ns: Annotated[float, "estimate"]
    low_ns: Interval = None
    high_ns: Interval = None


@dataclass(frozen=True)
class Ratio:
    """A number without unit with its 95 % interval."""

    value: Annotated[float, "estimate"]
    low: Interval = None
    high: Interval = None


@dataclass(frozen=True)
class Answer:
    """What the capture says, in words."""

    sentence: Annotated[str, "the answer in one sentence"]
    details: Annotated[list[str], "one more sentence for each driver or remarkable fact"]


@dataclass(frozen=True)
class TargetFacts:
    """The server that was measured."""

    pid: Annotated[int, "process id"]
    exe: Annotated[str, "executable"]
    server: Annotated[str, "server and version, for example mariadb 10.11.19"]
    tls: Annotated[str, "TLS library, version and linkage"]
    build_id: Annotated[str, "build-id of the executable"]


@dataclass(frozen=True)
class CaptureFacts:
    """What was recorded, where and for how long."""

    recorded_at: Annotated[str, "UTC time at the start, ISO 8601, or unknown"]
    duration_ns: Annotated[int, "sum of all windows"]
    window_count: Annotated[int, "windows"]
    thread_count: Annotated[int, "threads seen"]
    handshake_count: Annotated[int, "handshake records"]
    sample_count: Annotated[int, "CPU samples"]
    targets: Annotated[list[TargetFacts], "servers"]
    meta: Annotated[dict[str, str], "facts about the recording as they stand in the capture"]


@dataclass(frozen=True)
class LossLine:
    """One kind of loss that happened."""

    kind: Annotated[str, "name, see vocabulary"]
    count: Annotated[int, "times"]
    meaning: Annotated[str, "what happened"]
    consequence: Annotated[str, "what it means for the result"]


@dataclass(frozen=True)
class ClosureLine:
    """Ledger against foreign clocks for one window: connection threads, without idle."""

    window_id: Annotated[int, "window"]
    label: Annotated[str, "run it belongs to"]
    thread_count: Annotated[int, "connection threads in it"]
    ledger_ns: Annotated[int, "time in the ledger, without idle"]
    clock_ns: Annotated[int, "lifetime by the foreign clocks, less the ledger's idle"]
    closure: Annotated[float | None, "1 less the sum of the threads' misfits / clock_ns; 1 is full"]
    on_cpu_ns: Annotated[int, "on-CPU time by the ledger, threads with a scheduler clock only"]
    sched_cpu_ns: Annotated[int, "CPU time of the same threads by the scheduler"]
    steal_ns: Annotated[int, "on-CPU time of the same threads that the scheduler does not count"]
    on_cpu_ratio: Annotated[float | None, "on_cpu_ns / (sched_cpu_ns + steal_ns)"]
    uncertain_ns: Annotated[int, "time between missed probes and their healing"]
    healed_count: Annotated[int, "healed phases"]
    unchecked_count: Annotated[int, "threads that served and whose clocks were not read"]
    unchecked_ns: Annotated[int, "their time without idle"]


@dataclass(frozen=True)
class Closure:
    """How well the ledger agrees with clocks that are not its own."""

    ok: Annotated[bool | None, "every window closes to the threshold; null: nothing to check"]
    threshold: Annotated[float, "what every window must reach"]
    worst: Annotated[float | None, "worst closure of a window"]
    overall: Annotated[float | None, "closure of all windows together"]
    on_cpu_ratio: Annotated[float | None, "on-CPU time by the ledger / by the scheduler + steal"]
    steal_ns: Annotated[int, "on-CPU time of the threads that the scheduler does not count"]
    host_steal_ns: Annotated[int, "CPU time taken by the hypervisor, whole host"]
    unchecked_ns: Annotated[int, "time of threads whose clocks were not read, without idle"]
    uncertain_ns: Annotated[int, "time between missed probes and their healing"]
    healed_count: Annotated[int, "healed phases"]
    windows: Annotated[list[ClosureLine], "every window that has connection threads"]


@dataclass(frozen=True)
class ProbeLine:
    """One probe with its price."""

    boundary: Annotated[str, "phase boundary"]
    event: Annotated[str, "enter or exit"]
    function: Annotated[str, "probed function"]
    object: Annotated[str, "file"]
    kind: Annotated[str, "kind of probe"]
    instruction: Annotated[str, "instruction under the probe"]
    stepped: Annotated[bool, "the kernel single-steps the instruction"]
    hits_count: Annotated[int, "times it fired"]
    cost_ns: Annotated[float | None, "calibrated cost of a hit; null = not known"]
    total_ns: Annotated[float | None, "hits x cost"]


@dataclass(frozen=True)
class Observer:
    """What the measurement itself cost."""

    hits_count: Annotated[int, "probe hits"]
    hits_per_second: Annotated[float, "probe hits per second of recording"]
    probe_ns: Annotated[float | None, "hits x calibrated cost; null = no cost known"]
    probe_cpu_share: Annotated[float | None, "probe_ns / recording time: share of one CPU"]
    uncosted_hits_count: Annotated[int, "hits of probes without a calibrated cost"]
    engine_cpu_share: Annotated[float | None, "CPU of tlstax itself as a share of one CPU"]
    engine_rss_bytes: Annotated[int | None, "largest resident memory of tlstax"]
    probes: Annotated[list[ProbeLine], "every probe, dearest first"]


@dataclass(frozen=True)
class Symbols:
    """How well samples could be named and filed."""

    sample_count: Annotated[int, "CPU samples"]
    named_share: Annotated[float | None, "share of samples whose leaf has a name"]
    unknown_share: Annotated[float | None, "share of samples that the taxonomy cannot file"]
    no_stack_share: Annotated[float | None, "share of samples without any stack"]
    sources: Annotated[dict[str, int], "samples by where the leaf's name came from"]


@dataclass(frozen=True)
class Health:
    """Losses, closure, observer effect, symbol quality: to be shown above the first number."""

    warnings: Annotated[list[str], "sentences that a reader must see"]
    losses: Annotated[list[LossLine], "losses that happened; empty = none"]
    closure: Annotated[Closure, "ledger against foreign clocks"]
    observer: Annotated[Observer, "cost of measuring"]
    symbols: Annotated[Symbols, "symbol quality"]


@dataclass(frozen=True)
class Cell:
    """One step of the waterfall: time per operation, plaintext and TLS."""

    name: Annotated[str, "stable id, for example handshake_sign"]
    label: Annotated[str, "what it is, for people"]
    group: Annotated[str, "handshake, record, server, waiting, client or unexplained"]
    basis: Annotated[str, "exact (ledger), sampled (ledger split by samples) or client (driver)"]
    description: Annotated[str, "what is counted in it"]
    plaintext_ns: Annotated[float, "per operation in the plaintext arm"]
    tls_ns: Annotated[float, "per operation in the TLS arm"]
    difference: Annotated[Measure, "TLS less plaintext, per operation"]
    share: Annotated[float | None, "difference / total difference; null if the total is no more"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    start_ns: Annotated[float, "where its bar starts in the waterfall"]
    end_ns: Annotated[float, "where its bar ends"]


@dataclass(frozen=True)
class Comparison:
    """Plaintext against TLS for one driver and scenario, per operation."""

    name: Annotated[str, "stable id: driver/scenario"]
    driver: Annotated[str, "driver"]
    scenario: Annotated[str, "scenario"]
    operation: Annotated[str, "what one operation is: connection, transaction, query"]
    refusal: Annotated[str | None, "why the arms cannot be compared; then all below is empty"]
    sentence: Annotated[str, "the result in one sentence"]
    note: Annotated[str, "how the intervals were made and how far they can be trusted"]
    round_count: Annotated[int, "paired rounds"]
    resample_count: Annotated[int, "bootstrap resamples; 0 = no intervals"]
    operation_counts: Annotated[dict[str, int], "operations by arm"]
    latency: Annotated[dict[str, Measure], "mean latency of an operation at the client, by arm"]
    throughput_per_second: Annotated[dict[str, float], "operations per second by arm"]
    difference: Annotated[Measure | None, "latency, TLS less plaintext"]
    ratio: Annotated[Ratio | None, "latency, TLS / plaintext"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    cells: Annotated[list[Cell], "waterfall; with unexplained (last) they sum to the difference"]
    beside: Annotated[list[Cell], "costs off the client's path, not part of the sum"]


@dataclass(frozen=True)
class LedgerSegment:
    """Exact time in one phase and state."""

    phase: Annotated[str, "phase"]
    state: Annotated[str, "state"]
    time_ns: Annotated[int, "time"]
    share: Annotated[float, "of the bar's total_ns"]
    per_operation_ns: Annotated[float | None, "per operation; null without operations"]


@dataclass(frozen=True)
class LedgerBar:
    """Where the connection threads' time went in one arm, without idle."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    driver: Annotated[str, "driver, or ''"]
    scenario: Annotated[str, "scenario, or ''"]
    arm: Annotated[str, "plaintext, tls, or ''"]
    operation: Annotated[str, "what one operation is, or ''"]
    operation_count: Annotated[int, "operations; 0 without a driver"]
    total_ns: Annotated[int, "sum of the segments"]
    idle_ns: Annotated[int, "idle time, not in the segments"]
    background_ns: Annotated[int, "time of background threads, not in the segments"]
    unknown_ns: Annotated[int, "time before a thread's first boundary, not in the segments"]
    segments: Annotated[list[LedgerSegment], "by phase, then state, in vocabulary order"]


@dataclass(frozen=True)
class Share:
    """A category's share of a phase's CPU time."""

    category: Annotated[str, "category, see vocabulary"]
    share: Annotated[float, "of the phase's on-CPU time"]
    low: Interval
    high: Interval
    time_ns: Annotated[float, "share x exact on-CPU time"]
    sample_count: Annotated[int, "samples in it"]


@dataclass(frozen=True)
class PhaseComposition:
    """What the CPU did inside a phase: exact total, sampled split."""

    phase: Annotated[str, "phase"]
    on_cpu_ns: Annotated[int, "exact on-CPU time"]
    per_operation_ns: Annotated[float | None, "per operation; null without operations"]
    exact: Annotated[bool, "the phase is its category by definition; no samples needed"]
    sample_count: Annotated[int, "samples behind the split"]
    enough: Annotated[bool, "exact, or at least 1,000 samples"]
    shares: Annotated[list[Share], "largest first; they sum to 1 (empty: no samples)"]


@dataclass(frozen=True)
class Composition:
    """What the CPU did, by phase, in one arm."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    minimum_sample_count: Annotated[int, "samples that a printed share needs"]
    phases: Annotated[list[PhaseComposition], "phases with CPU time, in vocabulary order"]
    total: Annotated[list[Share], "all phases together, largest first; no interval"]


@dataclass(frozen=True)
class Quantile:
    """A quantile with the bucket it lies in."""

    q: Annotated[float, "0..1"]
    value_ns: Annotated[float, "estimate"]
    low_ns: Annotated[float, "lower bound"]
    high_ns: Annotated[float, "upper bound"]


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
    quantiles: Annotated[list[Quantile], "p50 p90 p95 p99 and max, as far as the count allows"]
    buckets: Annotated[list[Bucket], "without empty buckets"]


@dataclass(frozen=True)
class HandshakePart:
    """A part of the mean handshake."""

    name: Annotated[str, "sign, keygen, derive, verify, certificate, other_cpu, runnable, ..."]
    label: Annotated[str, "for people"]
    mean: Annotated[Measure, "per handshake"]
    share: Annotated[float, "of the mean wall time"]


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
    parts: Annotated[list[HandshakePart], "split of the mean; they sum to it"]
    distribution: Annotated[Distribution, "wall time of the successful ones"]


class FlameNode(TypedDict):
    """A frame of a flame graph, as d3-flame-graph wants it."""

    name: str
    value: float
    category: str
    children: list["FlameNode"]


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


@dataclass(frozen=True)
class RunLine:
    """One run as the driver reported it."""

    run_id: Annotated[int, "run"]
    label: Annotated[str, "driver/scenario/arm"]
    round: Annotated[int, "round"]
    duration_ns: Annotated[int, "duration"]
    threads_count: Annotated[int, "client threads"]
    connection_count: Annotated[int, "connections"]
    operation_count: Annotated[int, "operations"]
    operations_per_second: Annotated[float, "operations per second"]
    client_mean_ns: Annotated[int, "mean latency"]
    client_p95_ns: Annotated[int, "95th percentile"]
    handshake_count: Annotated[int, "handshakes that the probes counted"]
    proof: Annotated[dict[str, Any], "counters that prove the arm"]


@dataclass(frozen=True)
class Meaning:
    """A name that the report uses, explained."""

    name: Annotated[str, "name"]
    meaning: Annotated[str, "meaning"]


@dataclass(frozen=True)
class Method:
    """How it was measured."""

    paragraphs: Annotated[list[str], "in words"]
    phases: Annotated[list[Meaning], "phases"]
    states: Annotated[list[Meaning], "states"]
    categories: Annotated[list[Meaning], "categories"]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    version: Annotated[int, "version of this shape"]
    title: Annotated[str, "title"]
    answer: Annotated[Answer, "what the capture says"]
    capture: Annotated[CaptureFacts, "what was recorded"]
    health: Annotated[Health, "losses, closure, observer effect; shown first"]
    comparisons: Annotated[list[Comparison], "waterfalls; empty for a capture without runs"]
    ledgers: Annotated[list[LedgerBar], "one for each driver and arm, or one: all"]
    compositions: Annotated[list[Composition], "one for each ledger bar"]
    handshakes: Annotated[list[HandshakeTable], "one for each ledger bar with handshakes"]
    latencies: Annotated[list[Distribution], "phases of each ledger bar"]
    flames: Annotated[list[FlameGraph], "on_cpu and off_cpu of each ledger bar"]
    runs: Annotated[list[RunLine], "runs in order of time"]
    method: Annotated[Method, "how it was measured, and the vocabulary"]


def to_json(document: Document) -> dict[str, Any]:
    """The document as dictionaries, lists, strings, numbers and None.

    Flame trees are JSON already and deep: they are taken as they are.
    """
    plain: dict[str, Any] = _plain(document)
    return plain


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if _is_table(value) else value


def _is_table(value: Any) -> bool:
    """A dictionary that may hold dataclasses, so no flame tree."""
    return isinstance(value, dict) and "children" not in value

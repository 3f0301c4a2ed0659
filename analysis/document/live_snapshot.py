# SPDX-License-Identifier: GPL-2.0-only
"""The numbers of the live display: the last seconds of a recording."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tlstax.analysis.classify.hot_functions import function_name
from tlstax.analysis.classify.taxonomy import Sample, Taxonomy
from tlstax.analysis.rows import latency
from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.collectors.capture.schema import (
    Effect,
    Frame,
    Handshake,
    Latency,
    Ledger,
    Loss,
    PhaseCount,
    SampleStack,
    System,
    Window,
)
from tlstax.collectors.capture.syscalls import syscall_name
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES, LEDGER_LEVELS, REPAIRS, STATES

ROWS: Final = (*(p for p in SERVED_PHASES if p not in HANDSHAKE_PHASES[1:]), "background")
_SHOWN_ALWAYS: Final = ("connect", "handshake", "record_read", "command", "record_write")
_SHOWN_AT_FLOW: Final = ("connect", "handshake", "command")
_MANY: Final = 20
"""Minimum number of values for a 99th percentile."""


@dataclass
class Seen:
    """The rows of one window."""

    window: Window
    ledger: list[Ledger] = field(default_factory=list)
    counts: list[PhaseCount] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    handshakes: list[Handshake] = field(default_factory=list)
    samples: list[SampleStack] = field(default_factory=list)
    system: list[System] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    @property
    def span_ns(self) -> int:
        """Its length."""
        return self.window.end_ns - self.window.start_ns


@dataclass(frozen=True)
class PhaseLine:
    """A phase in the last seconds."""

    name: str
    per_second: float
    p50_ns: float | None
    p99_ns: float | None
    states: Mapping[str, float]
    """Seconds per second, by state."""

    @property
    def total(self) -> float:
        """Seconds per second."""
        return sum(self.states.values())


@dataclass(frozen=True)
class FunctionLine:
    """A function that samples hit."""

    name: str
    category: str
    phase: str
    share: float


@dataclass(frozen=True)
class LiveSnapshot:
    """All of it."""

    span_ns: int
    measured_ns: int
    """The part of it with a ledger."""
    level: str
    """That of most of the time with a ledger, or of most of the time if none has one."""
    handshakes_per_second: float
    failed_per_second: float
    resumed_share: float | None
    cpus: float | None
    idle_share: float | None
    phases: list[PhaseLine]
    waits: dict[str, float]
    """Seconds per second, by state, of threads that serve connections."""
    functions: list[FunctionLine]
    sample_count: int
    lost: dict[str, int]
    repaired_count: int
    cost_share: float | None
    engine_share: float | None
    engine_bytes: int


def look(
    seen: Sequence[Seen],
    stacks: Callable[[int | None], tuple[Frame, ...]],
    taxonomy: Taxonomy,
) -> LiveSnapshot:
    """The windows of the last seconds as one."""
    span_ns = sum(one.span_ns for one in seen)
    dense = [one for one in seen if one.window.level in LEDGER_LEVELS]
    shaking_ns = _span(seen, HANDSHAKE_LEVELS)
    shakes = [row for one in seen for row in one.handshakes]
    good = [row for row in shakes if row.outcome == "success"]
    phases = _phases(seen, dense)
    waits: dict[str, float] = defaultdict(float)
    for line in phases:
        if line.name in SERVED_PHASES:
            for state, value in line.states.items():
                if state != "on_cpu":
                    waits[state] += value
    functions, sample_count = _functions(seen, stacks, taxonomy)
    losses: Counter[str] = Counter()
    for one in seen:
        losses.update({row.kind: row.lost_count for row in one.losses})
    return LiveSnapshot(
        span_ns=span_ns,
        measured_ns=sum(one.span_ns for one in dense),
        level=_level(dense or seen),
        handshakes_per_second=_per_second(len(good), shaking_ns),
        failed_per_second=_per_second(len(shakes) - len(good), shaking_ns),
        resumed_share=sum(row.resumed == 1 for row in good) / len(good) if good else None,
        cpus=_cpus(seen),
        idle_share=_idle(seen),
        phases=phases,
        waits={state: waits[state] for state in STATES if waits.get(state)},
        functions=functions,
        sample_count=sample_count,
        lost={kind: count for kind, count in losses.items() if kind not in REPAIRS},
        repaired_count=sum(losses[kind] for kind in REPAIRS),
        cost_share=_cost(seen),
        engine_share=_engine(seen, span_ns),
        engine_bytes=max((row.engine_rss_bytes for one in seen for row in one.system), default=0),
    )


def _level(seen: Sequence[Seen]) -> str:
    spans: Counter[str] = Counter()
    for one in seen:
        spans[one.window.level] += one.span_ns
    return max(spans, key=spans.__getitem__, default="")


def _span(seen: Sequence[Seen], levels: Collection[str]) -> int:
    return sum(one.span_ns for one in seen if one.window.level in levels)


def _per_second(count: float, span_ns: int) -> float:
    return count / span_ns * 1e9 if span_ns else 0.0


def _merged(phase: str) -> str:
    return "handshake" if phase in HANDSHAKE_PHASES else phase


def _phases(seen: Sequence[Seen], dense: Sequence[Seen]) -> list[PhaseLine]:
    """One line for each phase, the handshake with its sub-phases."""
    dense_ns = sum(one.span_ns for one in dense)
    times: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for one in dense:
        for row in one.ledger:
            times[_merged(row.phase)][row.state] += _per_second(row.time_ns / 1e9, dense_ns)
    shaking_ns = _span(seen, HANDSHAKE_LEVELS)
    levels = {one.window.level for one in dense}
    shown_always = _SHOWN_AT_FLOW if levels == {"flow"} else _SHOWN_ALWAYS
    lines = []
    for phase in ROWS:
        span_ns = shaking_ns if phase in ("handshake", "connect") else dense_ns
        ended = (row.ended_count for one in seen for row in one.counts if row.phase == phase)
        count = max(0, sum(ended))
        states = {state: times[phase][state] for state in STATES if times[phase][state]}
        if not count and not states and phase not in shown_always:
            continue
        if phase == "background":
            states = {state: value for state, value in states.items() if state == "on_cpu"}
        rows = [row for one in seen for row in one.latencies if row.phase == phase]
        p50, p99 = _quantiles(rows)
        lines.append(PhaseLine(phase, _per_second(count, span_ns), p50, p99, states))
    return lines


def _quantiles(rows: Sequence[Latency]) -> tuple[float | None, float | None]:
    """The median and the 99th percentile, as far as the count allows."""
    buckets: latency.Buckets = defaultdict(int)
    for row in rows:
        buckets[row.low_ns, row.high_ns] += row.ended_count
    ordered = {place: count for place, count in sorted(buckets.items()) if count > 0}
    count = sum(ordered.values())
    if not count:
        return None, None
    p99 = latency.quantile(ordered, 0.99).value_ns if count >= _MANY else None
    return latency.quantile(ordered, 0.5).value_ns, p99


def _functions(
    seen: Sequence[Seen], stacks: Callable[[int | None], tuple[Frame, ...]], taxonomy: Taxonomy
) -> tuple[list[FunctionLine], int]:
    """What the CPU samples hit, most first."""
    found: Counter[tuple[str, str, str]] = Counter()
    for one in seen:
        for row in one.samples:
            user, kernel = stacks(row.user_stack_id), stacks(row.kernel_stack_id)
            category = taxonomy.category(Sample(row.phase, row.syscall, user, kernel))
            if row.kernel_stack_id is not None or not user:
                call = syscall_name(row.syscall) if row.syscall >= 0 else ""
                name = f"kernel: {call}" if call else "kernel"
            else:
                name = function_name(user[0])
            found[name, category, _merged(row.phase)] += row.sample_count
    total = sum(found.values())
    return [FunctionLine(*key, count / total) for key, count in found.most_common()], total


def _cpus(seen: Sequence[Seen]) -> float | None:
    """CPUs that the server used."""
    rows = [(row, one.span_ns) for one in seen for row in one.effects]
    known = [(row.target_cpu_ns, span) for row, span in rows if row.target_cpu_ns is not None]
    span_ns = sum(span for _, span in known)
    return sum(cpu for cpu, _ in known) / span_ns if span_ns else None


def _idle(seen: Sequence[Seen]) -> float | None:
    rows = [row for one in seen for row in one.system]
    idle = sum(row.cpu_idle_ns for row in rows)
    busy = sum(
        row.cpu_user_ns + row.cpu_system_ns + row.cpu_softirq_ns + row.cpu_steal_ns for row in rows
    )
    return idle / (idle + busy) if idle + busy else None


def _cost(seen: Sequence[Seen]) -> float | None:
    """The overhead, as a share of the server's CPU time."""
    rows = [row for one in seen for row in one.effects]
    cpu_ns = sum(row.target_cpu_ns or 0 for row in rows)
    parts = [(row.probe_ns, row.scheduler_ns, row.sample_ns) for row in rows]
    if not cpu_ns or any(value is None for part in parts for value in part):
        return None
    engine_ns = sum(row.engine_cpu_ns for one in seen for row in one.system)
    return (engine_ns + sum(sum(row.costs_ns) for row in rows)) / cpu_ns


def _engine(seen: Sequence[Seen], span_ns: int) -> float | None:
    """The recorder's own CPU time, of one CPU."""
    engine_ns = sum(row.engine_cpu_ns for one in seen for row in one.system)
    return engine_ns / span_ns if span_ns else None

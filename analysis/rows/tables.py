# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a capture in memory, and the groups of windows that a report shows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol, TypeVar

from tlstax.analysis.rows import operations
from tlstax.analysis.rows.edges import followed, open_commands, retracted, wait_places
from tlstax.analysis.rows.samples import Samples, columns_of
from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Collector,
    CommandPart,
    CpuClock,
    Effect,
    Frame,
    Gap,
    Handshake,
    InlinedFrame,
    Latency,
    Ledger,
    Loss,
    Meta,
    Metric,
    OffcpuStack,
    PhaseCount,
    Primitive,
    PrimitiveCalls,
    PrimitiveTime,
    Probe,
    ProcessClock,
    Run,
    SampleStack,
    Series,
    SourceFacts,
    Stack,
    Status,
    System,
    Target,
    Thread,
    ThreadClock,
    Window,
)
from tlstax.collectors.capture.vocabulary import ARMS, PHASES, SERIES_HOWS, SERIES_UNITS, STATES

ENGINES: Final = ("native", "bpftrace", "perf", "bcc", "pmp")
"""The engines in order of preference: a report shows the first one that recorded."""


_UNRECOGNISED: Final = "unknown"
"""Target.server of a program that no definition matches."""


class _OfWindow(Protocol):
    """A row that names its window."""

    @property
    def window_id(self) -> int: ...


class _OfTarget(Protocol):
    """A row that names its target."""

    @property
    def target_id(self) -> int: ...


W = TypeVar("W", bound=_OfWindow)
T = TypeVar("T", bound=_OfTarget)


@dataclass
class Tables:
    """The rows of a capture about its server. The default is an empty one."""

    meta: dict[str, str] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    ledger: list[Ledger] = field(default_factory=list)
    clocks: list[ThreadClock] = field(default_factory=list)
    process_clocks: list[ProcessClock] = field(default_factory=list)
    cpu_clocks: list[CpuClock] = field(default_factory=list)
    phase_counts: list[PhaseCount] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    command_parts: list[CommandPart] = field(default_factory=list)
    handshakes: list[Handshake] = field(default_factory=list)
    outgoing: list[Handshake] = field(default_factory=list)
    """Those that a server made as a client of another one; they are not in `handshakes`."""
    frames: list[Frame] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    inlined: list[InlinedFrame] = field(default_factory=list)
    samples: Sequence[SampleStack] = field(default_factory=list)
    deep: Sequence[SampleStack] = field(default_factory=list)
    """Samples of perf, which ran in addition to the engine; `samples` are the engine's own."""
    waits: list[OffcpuStack] = field(default_factory=list)
    primitives: list[Primitive] = field(default_factory=list)
    primitive_calls: list[PrimitiveCalls] = field(default_factory=list)
    primitive_times: list[PrimitiveTime] = field(default_factory=list)
    system: list[System] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    status: list[Status] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    collectors: list[Collector] = field(default_factory=list)
    source_facts: list[SourceFacts] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    clients: "Tables | None" = None
    """The same of all clients together, where any was recorded."""
    intermediaries: "Tables | None" = None
    """The same of all tunnels and proxies."""

    @cached_property
    def unfinished(self) -> list[open_commands.Unfinished]:
        """The commands that were under way at an edge of the recording: looked for once."""
        return open_commands.unfinished(self.ledger, self.windows, self.threads)


@dataclass(frozen=True)
class Group:
    """The windows and runs of one bar, table or flame graph."""

    name: str
    """Stable id: driver/scenario/arm, or all."""
    driver: str
    scenario: str
    arm: str
    runs: tuple[Run, ...]
    window_ids: frozenset[int]

    @property
    def operation_count(self) -> int:
        """Operations that the driver finished in these runs."""
        return sum(run.operation_count for run in self.runs)

    @property
    def operation(self) -> str:
        """What one operation is, or '' without runs."""
        return operations.operation_name(self.runs)

    @property
    def label(self) -> str:
        """The group's name for people."""
        if not self.runs:
            return "whole recording"
        return f"{self.driver} {self.scenario}, {'TLS' if self.arm == 'tls' else self.arm}"


def load(reader: CaptureReader) -> Tables:
    """Read every table. Raises TlstaxError (CAPTURE) if the file is damaged."""
    return by_target(_load_all(reader))


def by_target(tables: Tables) -> Tables:
    """The server's rows, with those of its clients in `clients`."""
    others = [target for target in tables.targets if target.role != "server"]
    servers = [target for target in tables.targets if target not in others]
    clients = [target for target in others if target.role == "client"]
    intermediaries = [target for target in others if target.role in ("tunnel", "proxy")]
    return replace(
        _serving(_about(tables, servers)),
        clients=_about(tables, clients) if clients else None,
        intermediaries=_about(tables, intermediaries) if intermediaries else None,
    )


def _serving(tables: Tables) -> Tables:
    """The rows of a server, with its handshakes with other servers apart.

    A program that is not known to be a server may be a client itself.
    """
    if all(target.server == _UNRECOGNISED for target in tables.targets):
        return tables
    outgoing = [row for row in tables.handshakes if row.side == "client"]
    if not outgoing:
        return tables
    incoming = [row for row in tables.handshakes if row.side != "client"]
    return replace(tables, handshakes=incoming, outgoing=outgoing)


def _main_engine(windows: list[Window]) -> list[Window]:
    """The windows of the report: those of one engine, the first of ENGINES that recorded."""
    for engine in ENGINES:
        if found := [window for window in windows if window.engine == engine]:
            return found
    return windows


def _about(tables: Tables, targets: list[Target]) -> Tables:
    """The rows of some targets; rows without a target (meta, runs, frames) stay."""
    target_ids = {target.target_id for target in targets}

    def of_target(rows: list[T]) -> list[T]:
        return [row for row in rows if row.target_id in target_ids]

    sampled = columns_of(tables.samples)
    windows = of_target(_main_engine(tables.windows))
    window_ids = {window.window_id for window in windows}
    beside = of_target([one for one in tables.windows if one.engine == "perf"])
    deep_ids = {window.window_id for window in beside} - window_ids

    def of_window(rows: list[W]) -> list[W]:
        return [row for row in rows if row.window_id in window_ids]

    return replace(
        tables,
        targets=targets,
        probes=of_target(tables.probes),
        gaps=of_target(tables.gaps),
        windows=windows,
        threads=of_target(tables.threads),
        ledger=of_window(tables.ledger),
        clocks=of_window(tables.clocks),
        process_clocks=of_window(tables.process_clocks),
        cpu_clocks=of_window(tables.cpu_clocks),
        phase_counts=of_window(tables.phase_counts),
        latencies=of_window(tables.latencies),
        command_parts=of_window(tables.command_parts),
        handshakes=of_window(tables.handshakes),
        samples=sampled.of_windows(window_ids),
        deep=sampled.of_windows(deep_ids),
        waits=of_window(tables.waits),
        primitives=of_target(tables.primitives),
        primitive_calls=of_window(tables.primitive_calls),
        primitive_times=of_window(tables.primitive_times),
        system=of_window(tables.system),
        effects=of_window(tables.effects),
        losses=of_window(tables.losses),
    )


def _load_all(reader: CaptureReader) -> Tables:
    reader.require_counts()
    loaded = _load_rows(reader)
    _require_terms(loaded, reader)
    ledger = open_commands.place(loaded.ledger, loaded.windows, loaded.threads, loaded.probes)
    return replace(
        loaded,
        ledger=ledger,
        waits=wait_places.place(loaded.waits, ledger, loaded.windows),
        losses=[*loaded.losses, *_cut_stacks(loaded)],
        handshakes=followed.with_known_parts(loaded.handshakes, loaded.windows),
    )


def _require_terms(rows: Tables, reader: CaptureReader) -> None:
    """Phases, states and units are those of the vocabulary: no recorder writes others."""
    named = (rows.ledger, rows.phase_counts, rows.latencies, rows.waits, rows.primitive_calls)
    phases = {row.phase for table in named for row in table}
    phases |= {place[0] for place in columns_of(rows.samples).places}
    states = {row.state for table in (rows.ledger, rows.waits) for row in table}
    units = {row.unit for row in rows.series}
    hows = {row.how for row in rows.series}
    for kind, used, known in (
        ("phase", phases, PHASES), ("state", states, STATES),
        ("unit of a series", units, SERIES_UNITS), ("kind of a series", hows, SERIES_HOWS),
    ):  # fmt: skip
        if unknown := used - set(known):
            raise reader.damaged(f"there is no {kind} {min(unknown)!r:.40}")


def _cut_stacks(rows: Tables) -> Iterator[Loss]:
    """What is lost because stacks are read up to a depth only."""
    cut = {stack.stack_id for stack in rows.stacks if frame_ids.is_cut(stack.frame_ids)}
    if cut:
        for row in rows.samples:
            if not cut.isdisjoint((row.user_stack_id, row.kernel_stack_id)):
                yield Loss(row.window_id, "stack_cut", row.sample_count)
        for wait in rows.waits:
            if not cut.isdisjoint((wait.user_stack_id, wait.kernel_stack_id)):
                yield Loss(wait.window_id, "stack_cut", wait.wait_count)


def _load_rows(reader: CaptureReader) -> Tables:
    windows = list(reader.rows(Window))
    return Tables(
        meta={row.key: row.value for row in reader.rows(Meta)},
        targets=list(reader.rows(Target)),
        probes=list(reader.rows(Probe)),
        runs=list(reader.rows(Run)),
        windows=windows,
        threads=list(reader.rows(Thread)),
        ledger=list(reader.rows(Ledger)),
        clocks=list(reader.rows(ThreadClock)),
        process_clocks=list(reader.rows(ProcessClock)),
        cpu_clocks=list(reader.rows(CpuClock)),
        phase_counts=retracted.settle_counts(list(reader.rows(PhaseCount)), windows),
        latencies=retracted.settle_latencies(list(reader.rows(Latency)), windows),
        command_parts=list(reader.rows(CommandPart)),
        handshakes=list(reader.rows(Handshake)),
        frames=list(reader.rows(Frame)),
        stacks=list(reader.rows(Stack)),
        inlined=list(reader.rows(InlinedFrame)),
        samples=Samples.load(reader),
        waits=list(reader.rows(OffcpuStack)),
        primitives=list(reader.rows(Primitive)),
        primitive_calls=list(reader.rows(PrimitiveCalls)),
        primitive_times=list(reader.rows(PrimitiveTime)),
        system=list(reader.rows(System)),
        effects=list(reader.rows(Effect)),
        status=list(reader.rows(Status)),
        metrics=list(reader.rows(Metric)),
        gaps=list(reader.rows(Gap)),
        losses=list(reader.rows(Loss)),
        collectors=list(reader.rows(Collector)),
        source_facts=list(reader.rows(SourceFacts)),
        series=list(reader.rows(Series)),
    )


def groups(tables: Tables) -> list[Group]:
    """One group for each driver, scenario and arm in order of time; without runs, one for all.

    If there are runs, windows outside of them belong to no group: they are preparation.
    """
    if not tables.runs:
        window_ids = frozenset(window.window_id for window in tables.windows)
        return [Group("all", "", "", "", (), window_ids)]
    by_key: dict[tuple[str, str, str], list[Run]] = {}
    firsts: dict[tuple[str, str], int] = {}
    for run in sorted(tables.runs, key=lambda run: run.start_ns):
        by_key.setdefault((run.driver, run.scenario, run.arm), []).append(run)
        firsts.setdefault((run.driver, run.scenario), len(firsts))
    ordered = sorted(by_key, key=lambda key: (firsts[key[0], key[1]], _arm_rank(key[2])))
    return [_group(key, by_key[key], tables.windows) for key in ordered]


def _arm_rank(arm: str) -> tuple[int, str]:
    return (ARMS.index(arm) if arm in ARMS else len(ARMS), arm)


def _group(key: tuple[str, str, str], runs: list[Run], windows: Iterable[Window]) -> Group:
    ids = {run.run_id for run in runs}
    return Group(
        "/".join(key),
        *key,
        tuple(runs),
        frozenset(window.window_id for window in windows if window.run_id in ids),
    )

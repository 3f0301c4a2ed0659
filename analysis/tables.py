# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a capture in memory, and the groups of windows that a report speaks about."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tlstax.analysis import operations
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Frame,
    Handshake,
    Latency,
    Ledger,
    Loss,
    Meta,
    OffcpuStack,
    PhaseCount,
    Probe,
    Run,
    SampleStack,
    Stack,
    Status,
    System,
    Target,
    Thread,
    ThreadClock,
    Window,
)
from tlstax.collectors.capture.vocabulary import ARMS


@dataclass
class Tables:
    """All rows of a capture. The default is an empty one."""

    meta: dict[str, str] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    ledger: list[Ledger] = field(default_factory=list)
    clocks: list[ThreadClock] = field(default_factory=list)
    phase_counts: list[PhaseCount] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    handshakes: list[Handshake] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    samples: list[SampleStack] = field(default_factory=list)
    waits: list[OffcpuStack] = field(default_factory=list)
    system: list[System] = field(default_factory=list)
    status: list[Status] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """The windows and runs that one bar, table or flame graph is about."""

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
    return Tables(
        meta={row.key: row.value for row in reader.rows(Meta)},
        targets=list(reader.rows(Target)),
        probes=list(reader.rows(Probe)),
        runs=list(reader.rows(Run)),
        windows=list(reader.rows(Window)),
        threads=list(reader.rows(Thread)),
        ledger=list(reader.rows(Ledger)),
        clocks=list(reader.rows(ThreadClock)),
        phase_counts=list(reader.rows(PhaseCount)),
        latencies=list(reader.rows(Latency)),
        handshakes=list(reader.rows(Handshake)),
        frames=list(reader.rows(Frame)),
        stacks=list(reader.rows(Stack)),
        samples=list(reader.rows(SampleStack)),
        waits=list(reader.rows(OffcpuStack)),
        system=list(reader.rows(System)),
        status=list(reader.rows(Status)),
        losses=list(reader.rows(Loss)),
    )


def groups(tables: Tables) -> list[Group]:
    """One group for each driver, scenario and arm in order of time; without runs, one for all.

    Windows outside of runs belong to no group if there are runs: the server was being prepared.
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

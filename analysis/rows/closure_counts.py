# SPDX-License-Identifier: GPL-2.0-only
"""Figures of closure that are about threads, CPUs, boundaries and the server's counters."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.rows.series import number
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import ProcessClock, Status, ThreadClock, Window
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

_COVERED: Final = 0.98
"""Share of the time between two readings of the server that windows must cover."""
_HZ_MOST: Final = 1e9
_COMMANDS: Final = ("Questions", "Com_stmt_prepare")
"""What the server counts as a statement of a client, and what it counts apart."""
_HANDSHAKES: Final = ("Ssl_finished_accepts", "Ssl_accepts")
"""Of these the first that moved: libraries count them differently."""


class Pair(NamedTuple):
    """A sum of the ledger and its reference."""

    value: float
    reference: float
    base: float | None = None
    """What the bound is a share of, where that is not the reference."""
    what: str = ""
    """The thread, CPU or boundary."""
    events: float = 0
    """What Bound.event is for each of."""
    slack: float = 0
    """More is allowed: what may have moved while accounts and counts were read."""


class _Count(NamedTuple):
    """What counters of the server grew by in some windows."""

    grown: float
    step: float
    """The most between two readings: an answer may come so late."""
    windows: frozenset[int]


def covered(row: ProcessClock | ThreadClock, known: Collection[int]) -> range:
    """Ids of the windows that a row is about; none where a part of them is not `known`."""
    if not 0 < row.window_count <= len(known):
        return range(0)
    ids = range(row.window_id - row.window_count + 1, row.window_id + 1)
    return ids if all(window_id in known for window_id in ids) else range(0)


class Span(NamedTuple):
    """The windows between two readings of the kernel's counts, and what these grew by."""

    windows: list[Window]
    row: ProcessClock

    @property
    def observed_ns(self) -> int:
        """Their length."""
        return sum(window.end_ns - window.start_ns for window in self.windows)


def spans(tables: Tables) -> list[Span]:
    """In order of time. Those that these tables have a part of only are left out."""
    windows = {row.window_id: row for row in tables.windows}
    found = [
        Span([windows[window_id] for window_id in ids], row)
        for row in tables.process_clocks
        if (ids := covered(row, windows.keys()))
    ]
    return sorted(found, key=lambda span: span.windows[0].start_ns)


def pairs(tables: Tables) -> dict[str, list[Pair]]:
    """By figure; a figure without a reference is absent or empty."""
    return {
        "thread_on_cpu": list(_threads(tables)),
        "samples": list(_cpus(tables)),
        "exits": list(_boundaries(tables)),
        "commands": list(_commands(tables)),
        "handshakes": list(_handshakes(tables)),
    }


def _threads(tables: Tables) -> Iterator[Pair]:
    """Each thread over all windows in which the scheduler's clock of it was read."""
    clocks: dict[int, int] = defaultdict(int)
    spent: dict[int, int] = defaultdict(int)
    lives: dict[int, int] = defaultdict(int)
    edges: dict[int, int] = defaultdict(int)
    known = {window.window_id for window in tables.windows}
    edge_of = {
        window_id: row.edges_ns
        for row in tables.process_clocks
        for window_id in covered(row, known)
    }
    read: set[tuple[int, int]] = set()
    for row in tables.clocks:
        ids = covered(row, known)
        if row.sched_cpu_ns is not None and ids:
            lives[row.thread_id] += row.lifetime_ns
            edges[row.thread_id] += edge_of.get(row.window_id, 0)
            clocks[row.thread_id] += row.sched_cpu_ns
            spent[row.thread_id] -= row.handed_ns
            read.update((window_id, row.thread_id) for window_id in ids)
    for entry in tables.ledger:
        if entry.state == "on_cpu" and (entry.window_id, entry.thread_id) in read:
            spent[entry.thread_id] += entry.time_ns
    names = {row.thread_id: f"{row.name} ({row.tid})" for row in tables.threads}
    steal_ns = sum(row.cpu_steal_ns for row in tables.system)
    switches = sum(row.switch_count for row in tables.process_clocks) / max(1, sum(clocks.values()))
    for thread_id, clock_ns in clocks.items():
        value = spent[thread_id]
        if value > clock_ns:  # stolen time is on the CPU for the ledger only
            value = max(clock_ns, value - steal_ns)
        name = names.get(thread_id, "unknown thread")
        busy = min(1.0, clock_ns / max(1, lives[thread_id]))
        slack = busy * edges[thread_id]
        yield Pair(value, clock_ns, None, name, switches * clock_ns, slack)


def _cpus(tables: Tables) -> Iterator[Pair]:
    """Samples of each CPU, and those that its CPU time should have given."""
    hz = number(tables.meta.get("sample_hz", "")) or 0.0
    if not 0 < hz < _HZ_MOST:
        return
    expected: dict[int, float] = defaultdict(float)
    taken: dict[int, int] = defaultdict(int)
    for row in tables.cpu_clocks:
        expected[row.cpu_id] += row.target_cpu_ns * hz / 1e9
        taken[row.cpu_id] += row.sample_count
    for cpu_id, samples in expected.items():
        yield Pair(taken[cpu_id], samples, None, f"CPU {cpu_id}", max(samples, 0.0) ** 0.5)


def _boundaries(tables: Tables) -> Iterator[Pair]:
    """Phases that each boundary began, and those of them whose end was seen.

    The losses do not have those that ended unseen because probes were being detached.
    """
    lost = sum(row.lost_count for row in tables.losses if row.kind == "healed")
    begun: dict[str, int] = defaultdict(int)
    healed: dict[str, int] = defaultdict(int)
    for row in tables.probes:
        begun[row.boundary] += row.begun_count
        healed[row.boundary] += row.healed_count
    for boundary, count in begun.items():
        if count:
            yield Pair(count - min(healed[boundary], lost), count, None, boundary)


def _commands(tables: Tables) -> Iterator[Pair]:
    rows = [row for row in tables.phase_counts if row.phase == "command"]
    ended = {row.window_id: row.ended_count for row in rows}
    windows = [window for window in tables.windows if window.level in LEDGER_LEVELS]
    count = _grown(tables.status, _COMMANDS, windows)
    if count is not None and ended:
        seen = sum(ended.get(window_id, 0) for window_id in count.windows)
        yield Pair(seen, count.grown, events=count.step)


def _handshakes(tables: Tables) -> Iterator[Pair]:
    windows = [window for window in tables.windows if window.level not in ("sample", "none")]
    for name in _HANDSHAKES:
        count = _grown(tables.status, (name,), windows)
        if count is not None and count.grown > 0:
            good = [row for row in tables.handshakes if row.outcome == "success"]
            seen = sum(row.window_id in count.windows for row in good)
            yield Pair(seen, count.grown, events=count.step)
            return


def _grown(
    rows: Sequence[Status], names: Sequence[str], windows: Sequence[Window]
) -> _Count | None:
    """What counters grew by in the windows between their first and last reading.

    None where the counters were not read, or the windows do not join.
    """
    times = sorted({row.time_ns for row in rows if row.run_id is None})
    known = [_readings(rows, name, times) for name in names]
    if len(times) < 2 or known[0] is None:
        return None
    inside = [w for w in windows if times[0] <= w.start_ns and w.end_ns <= times[-1]]
    inside.sort(key=lambda window: window.start_ns)
    if not inside:
        return None
    start_ns, end_ns = inside[0].start_ns, inside[-1].end_ns
    covered_ns = sum(window.end_ns - window.start_ns for window in inside)
    if covered_ns < _COVERED * (end_ns - start_ns):
        return None
    total = np.sum([values for values in known if values is not None], axis=0)
    offsets = [time_ns - times[0] for time_ns in times]
    first, last = np.interp([start_ns - times[0], end_ns - times[0]], offsets, total)
    windows_read = frozenset(window.window_id for window in inside)
    return _Count(float(last - first), float(np.diff(total).max()), windows_read)


def _readings(rows: Sequence[Status], name: str, times: Sequence[int]) -> list[float] | None:
    """A counter at each reading; rows exist only where it moved. None where it was not read."""
    told = {row.time_ns: row.value for row in rows if row.name == name and row.run_id is None}
    if not told or times[0] not in told:
        return None
    values: list[float] = []
    for time_ns in times:
        text = told.get(time_ns)
        try:
            values.append(values[-1] if text is None else float(text))
        except ValueError:
            return None
    if any(after < before for before, after in pairwise(values)):
        return None  # the server was asked to forget
    return values

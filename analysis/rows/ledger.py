# SPDX-License-Identifier: GPL-2.0-only
"""Sums over the ledger, and its closure against independent clocks."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tlstax.collectors.capture.schema import Ledger, Thread, ThreadClock
from tlstax.collectors.capture.vocabulary import CONNECTION_ROLES, PHASES, STATES

UNSERVED_PHASES: Final = ("unknown", "background", "idle")
"""Phases in which a thread serves no connection."""
SERVED_PHASES: Final = tuple(phase for phase in PHASES if phase not in UNSERVED_PHASES)
CLOSURE_THRESHOLD: Final = 0.99
"""Share of the connection threads' time that the ledger of a window must explain."""
CLOSURE_MIN_NS: Final = 1_000_000
"""The closure of a window with less busy time is not computed."""

Totals = dict[tuple[str, str], int]
"""Time in ns by (phase, state)."""


def totals(rows: Iterable[Ledger], window_ids: Collection[int]) -> Totals:
    """Time by phase and state over these windows, in vocabulary order."""
    sums: Totals = defaultdict(int)
    for row in rows:
        if row.window_id in window_ids:
            sums[row.phase, row.state] += row.time_ns
    return dict(sorted(sums.items(), key=lambda item: _rank(item[0])))


def by_window(rows: Iterable[Ledger]) -> dict[int, Totals]:
    """Time by phase and state of each window."""
    sums: dict[int, Totals] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        sums[row.window_id][row.phase, row.state] += row.time_ns
    return {window_id: dict(totals) for window_id, totals in sums.items()}


def by_role(
    rows: Iterable[Ledger], threads: Iterable[Thread], window_ids: Collection[int]
) -> dict[str, Totals]:
    """Time by phase and state of each role; threads without a row of their own are `unknown`."""
    roles = {thread.thread_id: thread.role for thread in threads}
    sums: dict[str, Totals] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.window_id in window_ids:
            sums[roles.get(row.thread_id, "unknown")][row.phase, row.state] += row.time_ns
    return {role: dict(totals) for role, totals in sums.items()}


def served(sums: Mapping[tuple[str, str], int]) -> Totals:
    """Only the phases in which connections are served."""
    return {key: time_ns for key, time_ns in sums.items() if key[0] not in UNSERVED_PHASES}


def phase_time(sums: Mapping[tuple[str, str], int], phases: Collection[str]) -> int:
    """Time in these phases, all states."""
    return sum(time_ns for (phase, _), time_ns in sums.items() if phase in phases)


def on_cpu(sums: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """On-CPU time by phase."""
    return {phase: time_ns for (phase, state), time_ns in sums.items() if state == "on_cpu"}


class WindowClosure(NamedTuple):
    """Ledger against independent clocks: connection threads of one window, without idle."""

    window_id: int
    thread_count: int = 0
    ledger_ns: int = 0
    clock_ns: int = 0
    misfit_ns: int = 0
    on_cpu_ns: int = 0
    sched_cpu_ns: int = 0
    steal_ns: int = 0
    uncertain_ns: int = 0
    healed_count: int = 0
    unchecked_count: int = 0
    unchecked_ns: int = 0

    @property
    def closure(self) -> float | None:
        """1 - (misfit / clock); None if there was too little time."""
        if self.clock_ns < CLOSURE_MIN_NS:
            return None
        return 1.0 - self.misfit_ns / self.clock_ns

    @property
    def on_cpu_ratio(self) -> float | None:
        """On-CPU time by the ledger over CPU time by the scheduler plus steal."""
        counted_ns = self.sched_cpu_ns + self.steal_ns
        return self.on_cpu_ns / counted_ns if self.sched_cpu_ns > 0 and counted_ns > 0 else None


def closures(
    rows: Iterable[Ledger], clocks: Iterable[ThreadClock], threads: Iterable[Thread]
) -> list[WindowClosure]:
    """The closure of each window with connection threads, in order.

    A connection thread is one with such a role, or one that served a connection in the window. Its
    misfit is the absolute difference between all of its ledger and its lifetime, so that a surplus
    of one thread cannot hide a gap of another; it is divided by the time that was not idle.
    Threads whose clocks were not read (too many, or gone) are counted as unchecked.
    """
    connection_ids = {thread.thread_id for thread in threads if thread.role in CONNECTION_ROLES}
    sums: dict[tuple[int, int], Totals] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        sums[row.window_id, row.thread_id][row.phase, row.state] += row.time_ns
    lines: dict[int, WindowClosure] = {}
    seen: set[tuple[int, int]] = set()
    for clock in clocks:
        key = (clock.window_id, clock.thread_id)
        seen.add(key)
        mine = sums.get(key, {})
        if clock.thread_id in connection_ids or served(mine):
            old = lines.get(clock.window_id, WindowClosure(clock.window_id))
            lines[clock.window_id] = _checked(old, clock, mine)
    for key, mine in sums.items():
        busy_ns = sum(served(mine).values())
        if key not in seen and busy_ns:
            old = lines.get(key[0], WindowClosure(key[0]))
            lines[key[0]] = old._replace(
                unchecked_count=old.unchecked_count + 1, unchecked_ns=old.unchecked_ns + busy_ns
            )
    return [lines[window_id] for window_id in sorted(lines)]


def _checked(
    old: WindowClosure, clock: ThreadClock, sums: Mapping[tuple[str, str], int]
) -> WindowClosure:
    """The window's line with one more thread."""
    idle_ns = phase_time(sums, ("idle",))
    total_ns = sum(sums.values())
    timed = clock.sched_cpu_ns is not None
    return old._replace(
        thread_count=old.thread_count + 1,
        ledger_ns=old.ledger_ns + total_ns - idle_ns,
        clock_ns=old.clock_ns + max(0, clock.lifetime_ns - idle_ns),
        misfit_ns=old.misfit_ns + abs(total_ns - clock.lifetime_ns),
        on_cpu_ns=old.on_cpu_ns + (sum(on_cpu(sums).values()) if timed else 0),
        sched_cpu_ns=old.sched_cpu_ns + (clock.sched_cpu_ns or 0),
        steal_ns=old.steal_ns + (clock.steal_ns if timed else 0),
        uncertain_ns=old.uncertain_ns + clock.uncertain_ns,
        healed_count=old.healed_count + clock.healed_count,
    )


def lifetime_closure(
    rows: Iterable[Ledger], clocks: Iterable[ThreadClock], window_ids: Collection[int]
) -> float | None:
    """1 - (absolute difference between ledger and lifetime of all threads / lifetime)."""
    read = [row for row in clocks if row.window_id in window_ids]
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for row in rows:
        sums[row.window_id, row.thread_id] += row.time_ns
    lifetime_ns = sum(row.lifetime_ns for row in read)
    misfit_ns = sum(abs(sums[c.window_id, c.thread_id] - c.lifetime_ns) for c in read)
    return 1 - misfit_ns / lifetime_ns if lifetime_ns else None


def combine(lines: Iterable[WindowClosure]) -> WindowClosure:
    """All windows together; window_id is -1 and thread_count counts threads of each window."""
    sums = [sum(values) for values in zip(*lines, strict=True)]
    return WindowClosure(-1, *sums[1:])


def _rank(key: tuple[str, str]) -> tuple[int, int, str, str]:
    """Vocabulary order; names of later versions come last."""
    phase, state = key
    return (
        PHASES.index(phase) if phase in PHASES else len(PHASES),
        STATES.index(state) if state in STATES else len(STATES),
        phase,
        state,
    )

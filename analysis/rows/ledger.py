# SPDX-License-Identifier: GPL-2.0-only
"""Sums over the ledger."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tlstax.collectors.capture.schema import Ledger, Thread
from tlstax.collectors.capture.vocabulary import PHASES, STATES

UNSERVED_PHASES: Final = ("unknown", "background", "idle")
"""Phases in which a thread serves no connection."""
SERVED_PHASES: Final = tuple(phase for phase in PHASES if phase not in UNSERVED_PHASES)

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


def _rank(key: tuple[str, str]) -> tuple[int, int, str, str]:
    """Vocabulary order; names of later versions come last."""
    phase, state = key
    return (
        PHASES.index(phase) if phase in PHASES else len(PHASES),
        STATES.index(state) if state in STATES else len(STATES),
        phase,
        state,
    )

# SPDX-License-Identifier: GPL-2.0-only
"""The ledger by role of the threads."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tlstax.analysis.model.tables import RoleLine
from tlstax.analysis.rows import ledger
from tlstax.collectors.capture.schema import Ledger, Thread
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES, ROLE_TERMS, STATES

TLS_PHASES: Final = (*HANDSHAKE_PHASES, "record_read", "record_write")
BLOCKED: Final = tuple(state for state in STATES if state.startswith("blocked_"))
MEANINGS: Final = {term.name: term.meaning for term in ROLE_TERMS}


def tabulate(
    rows: Iterable[Ledger], threads: Iterable[Thread], window_ids: Collection[int]
) -> list[RoleLine]:
    """One line for each role with time in these windows, the busiest first."""
    mine = [row for row in rows if row.window_id in window_ids]
    known = {thread.thread_id: thread for thread in threads}
    sums = ledger.by_role(mine, known.values(), window_ids)
    counts = Counter(
        known[number].role if number in known else "unknown"
        for number in {row.thread_id for row in mine}
    )
    lines = [_line(role, totals, counts[role]) for role, totals in sums.items()]
    return sorted(lines, key=lambda line: (-line.on_cpu_ns, line.role))


def _line(role: str, sums: Mapping[tuple[str, str], int], thread_count: int) -> RoleLine:
    awake = {key: time_ns for key, time_ns in sums.items() if key[0] != "idle"}
    states: Counter[str] = Counter()
    for (_, state), time_ns in awake.items():
        states[state] += time_ns
    on_cpu = ledger.on_cpu(sums)
    return RoleLine(
        role=role,
        meaning=MEANINGS.get(role, ""),
        thread_count=thread_count,
        on_cpu_ns=sum(on_cpu.values()),
        tls_ns=sum(time_ns for phase, time_ns in on_cpu.items() if phase in TLS_PHASES),
        runnable_ns=states["runnable"],
        blocked_ns={state: states[state] for state in BLOCKED if states[state]},
        idle_ns=ledger.phase_time(sums, ("idle",)),
    )

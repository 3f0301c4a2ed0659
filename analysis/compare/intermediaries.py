# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels and proxies: what the processes between client and server cost for each operation.

Their ledgers are exact, like the server's. CPU time and waits for a CPU belong to the operations
that pass through; other waits are mostly for the next packet, and are listed by kind, not added.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Final

import numpy as np

from tlstax.analysis.model.clients import Intermediaries, IntermediaryProcess
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import closure, round_units
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import medians, units
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.collectors.capture.schema import Target
from tlstax.collectors.capture.vocabulary import STATES

IDLE_SHARE: Final = 0.001
"""A process whose CPU time is a lower share of the group's time was idle."""
BLOCKED: Final = tuple(state for state in STATES if state.startswith("blocked_"))


def tabulate(parts: Sequence[Group], server: Tables) -> list[Intermediaries]:
    """One for each group during which a tunnel or proxy worked."""
    if server.intermediaries is None:
        return []
    lines = [_group(part, server.intermediaries) for part in parts]
    return [line for line in lines if line.processes]


def _group(part: Group, tables: Tables) -> Intermediaries:
    run_ids = {run.run_id for run in part.runs}
    windows = [w for w in tables.windows if not part.runs or w.run_id in run_ids]
    unit_of, done, of = _units(part)
    units = {w.window_id: unit_of.get(w.run_id, 0) for w in windows}
    times = _times(tables, units, len(done))
    processes = []
    idle_count = 0
    for target in tables.targets:
        mine = {w.window_id for w in windows if w.target_id == target.target_id}
        span_ns = sum(w.end_ns - w.start_ns for w in windows if w.window_id in mine)
        on_cpu_ns = float(times[target.target_id, "on_cpu"].sum())
        if on_cpu_ns < IDLE_SHARE * max(span_ns, 1):
            idle_count += bool(mine)
            continue
        processes.append(_process(target, tables, mine, times, (done, of)))
    processes.sort(key=lambda process: -process.cpu.value_ns)
    busy = {process.target_id for process in processes}
    sums = [times[number, "on_cpu"] for number in busy]
    total = _measure(np.sum(sums, axis=0) if sums else np.zeros(len(done)), (done, of))
    return Intermediaries(
        name=part.name,
        label=part.label,
        operation=part.operation,
        operation_count=part.operation_count,
        cpu=total,
        processes=processes,
        idle_count=idle_count,
        sentence=_sentence(part, total, processes),
    )


def _units(part: Group) -> tuple[dict[int | None, int], Floats, Units]:
    """(the unit of each run, operations by unit, units); without runs one, of one operation."""
    if not part.runs:
        return {}, np.ones(1), units.rounds(1)
    of = round_units.of_runs(part.runs)
    done = np.zeros(of.units.count)
    unit_of: dict[int | None, int] = {}
    for run in part.runs:
        unit_of[run.run_id] = of.unit_of[run.round]
        done[unit_of[run.run_id]] += run.operation_count
    return unit_of, done, of.units


def _times(
    tables: Tables, units: dict[int, int], count: int
) -> defaultdict[tuple[int, str], Floats]:
    """Nanoseconds by (target, state) and unit."""
    target_of = {window.window_id: window.target_id for window in tables.windows}
    times: defaultdict[tuple[int, str], Floats] = defaultdict(lambda: np.zeros(count))
    for row in tables.ledger:
        if row.window_id in units:
            times[target_of[row.window_id], row.state][units[row.window_id]] += row.time_ns
    return times


def _process(
    target: Target,
    tables: Tables,
    window_ids: Collection[int],
    times: defaultdict[tuple[int, str], Floats],
    operations: tuple[Floats, Units],
) -> IntermediaryProcess:
    number, done = target.target_id, operations[0]
    library, version = target.tls_library, target.tls_version
    return IntermediaryProcess(
        target_id=number,
        label=target.label or PurePosixPath(target.exe).name,
        role=target.role,
        exe=target.exe,
        tls=library if library == "unknown" else f"{library} {version}",
        cpu=_measure(times[number, "on_cpu"], operations),
        runnable=_measure(times[number, "runnable"], operations),
        blocked_ns={
            state: float(times[number, state].sum() / done.sum())
            for state in BLOCKED
            if times[number, state].any()
        },
        handshake_count=sum(
            row.window_id in window_ids and row.outcome == "success" for row in tables.handshakes
        ),
        thread_count=len({row.thread_id for row in tables.ledger if row.window_id in window_ids}),
        closure=closure.agreement(closure.cpu_times(tables), window_ids),
    )


def _measure(times_ns: Floats, operations: tuple[Floats, Units]) -> Measure:
    """Per operation: the median of the units."""
    done, of = operations
    weights = units.unit_weights(of.count)
    costs = (weights @ times_ns) / (weights @ done)
    return medians.estimate(costs, of).measure()


def _sentence(part: Group, total: Measure, processes: Sequence[IntermediaryProcess]) -> str:
    if not processes:
        return ""
    each = ", ".join(f"{line.label} {time_text(line.cpu.value_ns)}" for line in processes)
    share = f"for each {part.operation}" if part.operation else "in the whole recording"
    what = "proxy" if all(line.role == "proxy" for line in processes) else "tunnel"
    return f"the {what} computed {time_text(total.value_ns)} {share} ({each})"

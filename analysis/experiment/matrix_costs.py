# SPDX-License-Identifier: GPL-2.0-only
"""What the captures of a matrix say about each run: the ledger, its split, tunnels, closure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax.analysis.classify.composition import Stacks, count_samples
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.compare import end_to_end
from tlstax.analysis.compare.rounds import ArmRounds, empty, gather
from tlstax.analysis.compare.side_breakdown import Key
from tlstax.analysis.rows import closure, ledger, tables
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run

JUDGED_NS: Final = 100_000_000
"""CPU time of a run below which its sums are not compared on their own."""


@dataclass
class RunCost:
    """One run."""

    rounds: ArmRounds  # of one round
    cpu_times: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The server's by window, see closure.cpu_times()."""
    server_cpu_ns: int = 0
    processes: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """(pid, role) -> CPU and runnable time."""
    lanes: dict[Key, int] = field(default_factory=dict)
    """Time of client and server by stage and kind; empty where the client was not recorded."""
    client_cpu_times: dict[int, tuple[int, int]] = field(default_factory=dict)


def costs_of_runs(folder: Path, captures: Mapping[str, Iterable[int]]) -> dict[int, RunCost]:
    """The cost of each run by its id; `captures` are files below `folder` with their runs."""
    found: dict[int, RunCost] = {}
    for name, run_ids in captures.items():
        with CaptureReader.open(folder / name) as reader:
            found |= _costs(tables.load(reader), set(run_ids))
    return found


def _costs(rows: Tables, run_ids: set[int]) -> dict[int, RunCost]:
    sums = ledger.by_window(rows.ledger)
    counts = count_samples(rows.samples, Stacks(rows.frames, rows.stacks), builtin())
    run_of = {window.window_id: window.run_id for window in rows.windows}
    windows: dict[int, list[int]] = defaultdict(list)
    for window_id, run_id in run_of.items():
        if run_id is not None:
            windows[run_id].append(window_id)
    found = {}
    for run in rows.runs:
        if run.run_id in run_ids:
            mine = _part(rows, run, windows[run.run_id])
            group = Group("", run.driver, run.scenario, run.arm, (run,), frozenset())
            found[run.run_id] = RunCost(gather(group, {run.round: 0}, mine, sums, counts))
            found[run.run_id].server_cpu_ns = sum(
                time_ns
                for window_id in windows[run.run_id]
                for (_, state), time_ns in ledger.served(sums.get(window_id, {})).items()
                if state == "on_cpu"
            )
    times = closure.cpu_times(rows)
    for run_id, cost in found.items():
        cost.cpu_times = _of_windows(times, windows[run_id])
    _add_processes(rows.intermediaries, found)
    _add_clients(rows, found)
    return found


def _part(rows: Tables, run: Run, window_ids: Sequence[int]) -> Tables:
    """Only what `gather` reads: the windows of one run."""
    wanted = set(window_ids)
    return Tables(windows=[window for window in rows.windows if window.window_id in wanted])


def _add_processes(intermediaries: Tables | None, found: Mapping[int, RunCost]) -> None:
    if intermediaries is None:
        return
    names = {target.target_id: (target.pid, target.role) for target in intermediaries.targets}
    sums = ledger.by_window(intermediaries.ledger)
    for window in intermediaries.windows:
        cost = found.get(window.run_id or 0)
        if cost is None:
            continue
        times = cost.processes.setdefault(names[window.target_id], [0, 0])
        for (_, state), time_ns in sums.get(window.window_id, {}).items():
            if state in ("on_cpu", "runnable"):
                times[state == "runnable"] += time_ns


def _add_clients(rows: Tables, found: Mapping[int, RunCost]) -> None:
    """Both lanes of each run, and how well that of the client closes."""
    clients = rows.clients
    if clients is None:
        return
    run_of = {
        window.window_id: window.run_id
        for tables in (rows, clients)
        for window in tables.windows
        if window.run_id is not None and window.run_id in found
    }
    for key, run_id, time_ns in end_to_end.side_times(rows, clients, run_of, is_driven=True):
        lanes = found[run_id].lanes
        lanes[key] = lanes.get(key, 0) + time_ns
    mine: dict[int, list[int]] = defaultdict(list)
    for window in clients.windows:
        if window.run_id is not None and window.run_id in found:
            mine[window.run_id].append(window.window_id)
    times = closure.cpu_times(clients)
    for run_id, window_ids in mine.items():
        found[run_id].client_cpu_times = _of_windows(times, window_ids)


def together(costs: Sequence[RunCost], of: RoundUnits) -> ArmRounds:
    """Runs of one cell as an arm whose rows are their units."""
    arm = empty(of.units.count)
    for at, cost in enumerate(costs):
        for name in ArmRounds.__dataclass_fields__:
            getattr(arm, name)[of.unit_of[at]] += getattr(cost.rounds, name)[0]
    return arm


def _of_windows(
    times: Mapping[int, tuple[int, int]], window_ids: Iterable[int]
) -> dict[int, tuple[int, int]]:
    return {window_id: times[window_id] for window_id in window_ids if window_id in times}


def closure_of(parts: Iterable[Mapping[int, tuple[int, int]]]) -> float | None:
    """Closure of the CPU time of some runs together, as closure.agreement() computes it.

    None where a run has less CPU time on average than JUDGED_NS: what runs while the edges of its
    windows are read would decide.
    """
    runs = list(parts)
    times = [one for part in runs for one in part.values()]
    if sum(clock_ns for _, clock_ns in times) < JUDGED_NS * len(runs):
        return None
    return closure.agreement(dict(enumerate(times)), range(len(times)))

# SPDX-License-Identifier: GPL-2.0-only
"""A matrix explained: each cell by itself, against its baseline, and beside what was published."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tlstax.analysis.compare.rounds import ArmCosts, close, costs_of
from tlstax.analysis.compare.step_changes import step_changes, unexplained
from tlstax.analysis.compare.waterfall_steps import KINDS
from tlstax.analysis.experiment import client_figures, matrix_costs, matrix_sides
from tlstax.analysis.experiment.matrix_costs import RunCost
from tlstax.analysis.experiment.matrix_results import Published, Results, Row
from tlstax.analysis.model.difference import Step
from tlstax.analysis.model.matrix import (
    Matrix,
    MatrixCell,
    MatrixFailure,
    MatrixPair,
    MatrixPublished,
    Process,
)
from tlstax.analysis.model.tables import Ratio
from tlstax.analysis.quantities import change_text, fraction, time_text
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics import units as units_of
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Units
from tlstax.analysis.statistics.verdicts import NO_DIFFERENCE, judge

DOTS_MAX: Final = 400
CDF_POINTS: Final = 100
TOLD_STEPS: Final = 3
Costs = Mapping[int, RunCost]


def explain(results: Results) -> Matrix:
    """Everything that the report shows."""
    captures: dict[str, list[int]] = defaultdict(list)
    for runs in results.runs.values():
        for run in runs:
            captures[run["capture"]].append(run["run_id"])
    costs = matrix_costs.costs_of_runs(results.folder, captures)
    cells = {
        cell_id: _cell(results, cell_id, costs)
        for cell_id in results.cells
        if results.runs.get(cell_id)
    }
    pairs = [
        pair
        for cell_id, row in results.cells.items()
        if row["baseline_id"] in cells and cell_id in cells
        if (pair := _pair(results, cells, cell_id, costs)) is not None
    ]
    least = min((pair.round_count for pair in pairs), default=0)
    return Matrix(
        title=results.meta.get("title") or results.meta["recipe"],
        facts=_facts(results.meta),
        note=units_of.interval_note([units_of.rounds(least, "paired rounds")]) if pairs else "",
        servers=dict(results.servers),
        routes=dict(results.routes),
        cells=list(cells.values()),
        pairs=pairs,
        published=_published(results, cells),
        failures=[
            MatrixFailure(row["label"], row["state"], row["reason"], row["run_count"])
            for row in results.undone
        ],
    )


def _facts(meta: Mapping[str, str]) -> dict[str, str]:
    """What is worth telling of the whole."""
    facts = {
        key: value
        for key, value in meta.items()
        if key not in ("title", "kind") and value not in ("", "{}")
    }
    moved = json.loads(meta["baseline"])
    facts["baseline"] = ", ".join(f"{name} {value}" for name, value in moved.items())
    return facts


# ---- cells ----


def _cell(results: Results, cell_id: int, costs: Costs) -> MatrixCell:
    row, runs = results.cells[cell_id], results.runs[cell_id]
    mine = [costs[run["run_id"]] for run in runs if run["run_id"] in costs]
    operations = sum(run["operations_count"] for run in runs) or 1
    recorded = sum(float(cost.rounds.operations.sum()) for cost in mine)
    reused = [run["reused_count"] for run in runs if run["reused_count"] is not None]
    carried = [run["carried_bytes"] for run in runs if run["carried_bytes"] is not None]
    connections = sum(run["connections_count"] for run in runs)
    return MatrixCell(
        cell_id=cell_id,
        label=row["label"],
        place=results.place(cell_id),
        arm=row["arm"],
        operation=row["operation"],
        round_count=len(runs),
        operations_per_s=client_figures.rate(runs, "operations_count"),
        connections_per_s=client_figures.rate(runs, "connections_count"),
        queries_per_s=client_figures.rate(runs, "queries_count")
        if all(run["queries_count"] for run in runs)
        else None,
        mean=client_figures.mean(runs),
        p95=client_figures.p95(results, runs),
        max_ns=max(run["max_ns"] for run in runs),
        server_cpu_ns=sum(cost.server_cpu_ns for cost in mine) / recorded if recorded else None,
        client_cpu_ns=sum(run["client_cpu_ns"] for run in runs) / operations,
        processes=_processes(results, row, mine, recorded),
        closure=matrix_costs.closure_of(cost.cpu_times for cost in mine),
        negotiated=", ".join(
            sorted({f"{run['tls_version']} {run['tls_cipher']}".strip() for run in runs} - {""})
        ),
        reused_share=sum(reused) / connections if reused and connections else None,
        carried_bytes=sum(carried) / operations if carried else None,
        cdf=_cdf(results, runs),
        dots=_dots(results, runs),
    )


def _processes(
    results: Results, cell: Row, costs: Sequence[RunCost], operations: float
) -> list[Process]:
    """Those of the cell's own way that did anything; other ways were open at the same time."""
    names = results.process_names(cell)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for cost in costs:
        for (pid, role), times in cost.processes.items():
            if pid in names:
                key = (names[pid], role)
                sums[key] = [old + new for old, new in zip(sums[key], times, strict=True)]
    return [
        Process(*key, cpu / operations, runnable / operations)
        for key, (cpu, runnable) in sorted(sums.items())
        if operations and cpu
    ]


def _cdf(results: Results, runs: Sequence[Row]) -> list[list[float]]:
    """The distribution of all rounds together, by at most CDF_POINTS + 1 points."""
    values = sorted(value for run in runs for value in results.samples.get(run["run_id"], []))
    if values:
        last = len(values) - 1
        places = sorted({round(last * point / CDF_POINTS) for point in range(CDF_POINTS + 1)})
        return [[float(values[place]), (place + 1) / len(values)] for place in places]
    counts: dict[int, int] = defaultdict(int)
    for run in runs:
        for upper_ns, count in results.histograms.get(run["run_id"], []):
            counts[upper_ns] += count
    total, seen, points = sum(counts.values()), 0, []
    for upper_ns in sorted(counts):
        seen += counts[upper_ns]
        points.append([float(upper_ns), seen / total])
    return points


def _dots(results: Results, runs: Sequence[Row]) -> list[int]:
    values = [value for run in runs for value in results.samples.get(run["run_id"], [])]
    return values[:: max(1, -(-len(values) // DOTS_MAX))]


# ---- pairs ----


def _pair(
    results: Results, cells: Mapping[int, MatrixCell], cell_id: int, costs: Costs
) -> MatrixPair | None:
    """A cell against its baseline; None where they share no recorded round."""
    baseline_id = results.cells[cell_id]["baseline_id"]
    sides = [
        {run["round"]: run for run in results.runs[number] if run["run_id"] in costs}
        for number in (baseline_id, cell_id)
    ]
    rounds = sorted(sides[0].keys() & sides[1].keys())
    if not rounds:
        return None
    units = units_of.rounds(len(rounds), "paired rounds")
    weights = units_of.unit_weights(len(rounds))
    used = [[costs[side[number]["run_id"]] for number in rounds] for side in sides]
    low, high = (costs_of(matrix_costs.together(part), weights) for part in used)
    close(low, high)
    found = medians.difference(low.latency_ns, high.latency_ns, (units, units), is_paired=True)
    before, after = (
        weights
        @ np.array([client_figures.per_s(side[number], "operations_count") for number in rounds])
        for side in sides
    )
    ratio = medians.ratio(before, after, (units, units), is_paired=True).ratio()
    steps = _steps(low, high, units)
    closures = [matrix_costs.closure_of(cost.cpu_times for cost in part) for part in used]
    cell, base = cells[cell_id], cells[baseline_id]
    return MatrixPair(
        cell_id=cell_id,
        baseline_id=baseline_id,
        name=cell.label,
        baseline=_moved_text(cell, base),
        operation=cell.operation,
        sentence=_sentence(cell, base, ratio, found, steps),
        round_count=len(rounds),
        throughput=ratio,
        totals=[medians.estimate(side.latency_ns, units).measure() for side in (low, high)],
        difference=found.measure(),
        steps=steps[: len(KINDS) + 1],
        beside=steps[len(KINDS) + 1 :],
        closure=min((one for one in closures if one is not None), default=None),
        both_sides=matrix_sides.both_sides(used[0], used[1], cell.operation),
        unexplained=[unexplained(side, units) for side in (low, high)],
    )


def _steps(low: ArmCosts, high: ArmCosts, units: Units) -> list[Step]:
    """All steps of the waterfall in order, then what no client waits for."""
    samples = [sum(side.sample_counts.values()) for side in (low, high)]
    return [
        line.step(samples) for line in step_changes((low, high), (units, units), is_paired=True)
    ]


def _moved_text(cell: MatrixCell, base: MatrixCell) -> str:
    """Where the baseline lies otherwise: 'TLS off, transport tcp'."""
    return ", ".join(
        f"{'TLS' if name == 'tls' else name} {value}"
        for name, value in base.place.items()
        if cell.place[name] != value
    )


def _sentence(
    cell: MatrixCell, base: MatrixCell, ratio: Ratio, found: Estimate, steps: Sequence[Step]
) -> str:
    per = f"each {cell.operation}"
    if judge(found) == NO_DIFFERENCE:
        smallest = time_text(found.smallest)
        start = f"No difference seen in the time of {per} (one of {smallest} would have been)"
    else:
        word = "longer" if found.value >= 0 else "shorter"
        start = f"{per.capitalize()} takes {time_text(abs(found.value))} {word}"
    share = f"{fraction(ratio.value)} of the throughput with {_moved_text(cell, base)}"
    steps = [step for step in steps if step.name != "unexplained" and step.start_ns]
    largest = sorted(steps, key=lambda step: -abs(step.difference.value_ns))[:TOLD_STEPS]
    parts = ", ".join(f"{step.label} {change_text(step.difference.value_ns)}" for step in largest)
    return f"{start}: {share}; {parts}."


# ---- published figures ----


def _published(results: Results, cells: Mapping[int, MatrixCell]) -> list[MatrixPublished]:
    moved = json.loads(results.meta["baseline"])
    lines = []
    for entry in results.published:
        theirs = _their_baseline(entry, results.published, moved)
        for cell_id, cell in cells.items():
            if not all(cell.place[name] in allowed for name, allowed in entry.where.items()):
                continue
            base = cells.get(results.cells[cell_id]["baseline_id"])
            measured = _quantity(cell, entry.quantity)
            ours = _quantity(base, entry.quantity) if base else None
            is_ratio = entry.quantity == "ratio"
            ratio = entry.value if is_ratio else entry.value / theirs if theirs else None
            lines.append(
                MatrixPublished(
                    entry.source,
                    entry.setup,
                    entry.quantity,
                    None if is_ratio else entry.value,
                    ratio if base else None,
                    cell.label,
                    measured,
                    measured / ours if ours else None,
                )
            )
    return lines


def _quantity(cell: MatrixCell, name: str) -> float:
    if name == "queries_per_s" and cell.queries_per_s is not None:
        return cell.queries_per_s.value
    if name in ("operations_per_s", "queries_per_s", "ratio"):
        return cell.operations_per_s.value
    return {"mean_ns": cell.mean, "p95_ns": cell.p95}[name].value_ns


def _their_baseline(
    entry: Published, known: Sequence[Published], moved: Mapping[str, Any]
) -> float | None:
    """The figure of the same source for the same place, but where the baseline lies."""
    where = {**entry.where, **{name: [value] for name, value in moved.items()}}
    best: tuple[int, float] | None = None
    for other in known:
        if (other.source, other.quantity) != (entry.source, entry.quantity):
            continue
        if all(set(where.get(name, [])) & set(values) for name, values in other.where.items()):
            rank = len(other.where)
            if best is None or rank > best[0]:
                best = (rank, other.value)
    return best[1] if best and not math.isclose(best[1], 0.0) else None

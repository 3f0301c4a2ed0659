# SPDX-License-Identifier: GPL-2.0-only
"""A matrix explained: each cell by itself, against its baseline, and beside what was published."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tlstax.analysis.compare import server_cost
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
from tlstax.analysis.model.tables import CpuCost, Ratio
from tlstax.analysis.quantities import change_text, fraction, time_text, unseen_text
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics import units as units_of
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.analysis.statistics.verdicts import judge

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
    return Matrix(
        title=results.meta.get("title") or results.meta["recipe"],
        facts=_facts(results.meta),
        note=units_of.interval_note([_units(pair) for pair in pairs]) if pairs else "",
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
    runs = [[side[number] for number in rounds] for side in sides]
    of = client_figures.units_of(runs[1], "paired rounds")
    units = of.units
    weights = units_of.unit_weights(units.count)
    used = [[costs[run["run_id"]] for run in part] for part in runs]
    low, high = (costs_of(matrix_costs.together(part, of), weights) for part in used)
    close(low, high)
    found = medians.difference(low.latency_ns, high.latency_ns, (units, units), is_paired=True)
    before, after = (weights @ client_figures.per_s(part, "operations_count", of) for part in runs)
    ratio = medians.ratio(before, after, (units, units), is_paired=True).ratio()
    steps = _steps(low, high, units)
    cpu = server_cost.of_sums(_server_cpu(used[0], of), _server_cpu(used[1], of), units)
    closures = [matrix_costs.closure_of(cost.cpu_times for cost in part) for part in used]
    cell, base = cells[cell_id], cells[baseline_id]
    return MatrixPair(
        cell_id=cell_id,
        baseline_id=baseline_id,
        name=cell.label,
        baseline=_moved_text(cell, base),
        operation=cell.operation,
        sentence=_sentence(cell, base, ratio, found, steps, cpu),
        round_count=len(rounds),
        throughput=ratio,
        totals=[medians.estimate(side.latency_ns, units).measure() for side in (low, high)],
        difference=found.measure(),
        steps=steps[: len(KINDS) + 1],
        beside=steps[len(KINDS) + 1 :],
        closure=min((one for one in closures if one is not None), default=None),
        both_sides=matrix_sides.both_sides(used[0], used[1], of, cell.operation),
        unexplained=[unexplained(side, units) for side in (low, high)],
        server_cpu=cpu,
        start_count=of.start_count,
    )


def _units(pair: MatrixPair) -> Units:
    """Those of its bounds."""
    if pair.start_count > 1:
        return units_of.server_starts(pair.start_count)
    return units_of.rounds(pair.round_count, "paired rounds")


def _server_cpu(costs: Sequence[RunCost], of: RoundUnits) -> tuple[Floats, Floats]:
    """CPU time of the server's connections, and operations, by unit."""
    cpu_ns = client_figures.sums([cost.server_cpu_ns for cost in costs], of)
    return cpu_ns, client_figures.sums([cost.rounds.operations.sum() for cost in costs], of)


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
    cell: MatrixCell,
    base: MatrixCell,
    ratio: Ratio,
    found: Estimate,
    steps: Sequence[Step],
    cpu: CpuCost | None,
) -> str:
    """What the server's CPUs paid, then the latency, then the largest steps beyond doubt."""
    what, paid = f"Each {cell.operation} takes ", ""
    if cpu is not None and not server_cost.is_unseen(cpu.verdict, cpu.difference):
        change = change_text(cpu.difference.value_ns)
        paid = f"{what}{server_cost.cpu_factor_text(cpu)} ({change})"
    if server_cost.is_unseen(judge(found), found.measure()):
        unseen = f"no difference seen in its time ({unseen_text(found.measure())})"
        start = f"{paid}; {unseen}" if paid else f"Each {cell.operation}: {unseen}"
    else:
        word = "longer" if found.value >= 0 else "shorter"
        start = f"{f'{paid} and ' if paid else what}{time_text(abs(found.value))} {word}"
    share = f"{fraction(ratio.value)} of the throughput with {_moved_text(cell, base)}"
    firm = [
        step
        for step in steps
        if step.name != "unexplained"
        and step.start_ns
        and not server_cost.is_unseen(step.verdict, step.difference)
    ]
    largest = sorted(firm, key=lambda step: -abs(step.difference.value_ns))[:TOLD_STEPS]
    parts = [f"{step.label} {change_text(step.difference.value_ns)}" for step in largest]
    return f"{start}: {share}{'; ' if parts else ''}{', '.join(parts)}."


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

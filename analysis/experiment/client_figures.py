# SPDX-License-Identifier: GPL-2.0-only
"""What the client counted in the rounds of a cell: rates, mean latency, a quantile of all.

Rounds are units, or starts of the server are, with all of their rounds (`rows.round_units`).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tlstax.analysis.experiment.matrix_results import Results, Row
from tlstax.analysis.model.tables import Measure, Ratio
from tlstax.analysis.rows import round_units
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.statistics import medians, shares
from tlstax.analysis.statistics.units import Floats

TAIL: Final = 0.95
Steps = tuple[Floats, Floats]
"""Latencies in ascending order, and how often each occurred."""


def units_of(runs: Sequence[Row], name: str = "rounds") -> RoundUnits:
    """The units of runs of one cell, by their places in the list."""
    return round_units.of_starts({at: run["server_start"] for at, run in enumerate(runs)}, name)


def per_s(runs: Sequence[Row], name: str, of: RoundUnits) -> Floats:
    """A count of runs per second, of each unit."""
    time_ns = sums([run["elapsed_ns"] for run in runs], of)
    counts = sums([run[name] for run in runs], of)
    return np.divide(counts * 1e9, time_ns, out=np.zeros(len(counts)), where=time_ns > 0)


def sums(values: Sequence[float], of: RoundUnits) -> Floats:
    """Values of runs by unit."""
    places = [of.unit_of[at] for at in range(len(values))]
    found: Floats = np.bincount(places, values, minlength=of.units.count).astype(np.float64)
    return found


def rate(runs: Sequence[Row], name: str) -> Ratio:
    """The median of the units."""
    of = units_of(runs)
    return medians.of_values(per_s(runs, name, of).tolist(), of.units).ratio()


def mean(runs: Sequence[Row]) -> Measure:
    """The median of the units' mean latencies."""
    of = units_of(runs)
    counts = sums([run["operations_count"] for run in runs], of)
    times_ns = sums([run["mean_ns"] * run["operations_count"] for run in runs], of)
    means_ns = np.divide(times_ns, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return medians.of_values(means_ns.tolist(), of.units).measure()


def p95(results: Results, runs: Sequence[Row]) -> Measure:
    """The 95th percentile of all operations of all rounds: of the merged samples or histograms.

    Where neither was kept, it is the median of the percentiles that the client printed (of a start
    of the server: of their mean).
    """
    each, of = [steps_of(results, run["run_id"]) for run in runs], units_of(runs)
    if not any(len(values) for values, _ in each):
        printed = sums([run["p95_ns"] for run in runs], of) / sums([1] * len(runs), of)
        return medians.of_values(printed.tolist(), of.units).measure()
    values, counts = merged(each)
    reached = np.cumsum(counts) / counts.sum()

    def at(q: float) -> float:
        return float(values[min(len(values) - 1, int(np.searchsorted(reached, q - 1e-12)))])

    value = at(TAIL)
    below = sums([float(mine[known < value].sum()) for known, mine in each], of)
    equal = sums([float(mine[known == value].sum()) for known, mine in each], of)
    totals = sums([float(mine.sum()) for _, mine in each], of)
    return shares.quantile(TAIL, at, below, equal, totals, of.units).measure()


def steps_of(results: Results, run_id: int) -> Steps:
    """The latencies of a run; empty where none were kept."""
    return _steps(results.samples, results.histograms, run_id)


def _steps(
    samples: Mapping[int, list[int]], histograms: Mapping[int, list[tuple[int, int]]], run_id: int
) -> Steps:
    if values := samples.get(run_id):
        return np.sort(np.array(values, dtype=np.float64)), np.ones(len(values))
    rows = np.array(sorted(histograms.get(run_id, [])), dtype=np.float64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def merged(each: Sequence[Steps]) -> Steps:
    """Several runs as one."""
    values = np.concatenate([mine for mine, _ in each])
    counts = np.concatenate([mine for _, mine in each])
    order = np.argsort(values, kind="stable")
    return values[order], counts[order]

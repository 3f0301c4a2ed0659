# SPDX-License-Identifier: GPL-2.0-only
"""What the client counted in the rounds of a cell: rates, mean latency, a quantile of all."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tlstax.analysis.experiment.matrix_results import Results, Row
from tlstax.analysis.model.tables import Measure, Ratio
from tlstax.analysis.statistics import medians, shares
from tlstax.analysis.statistics.units import Floats, rounds

TAIL: Final = 0.95
Steps = tuple[Floats, Floats]
"""Latencies in ascending order, and how often each occurred."""


def per_s(run: Row, name: str) -> float:
    """A count of a run per second."""
    return float(run[name] * 1e9 / run["elapsed_ns"]) if run["elapsed_ns"] else 0.0


def rate(runs: Sequence[Row], name: str) -> Ratio:
    """The median of the rounds."""
    return medians.of_values([per_s(run, name) for run in runs], rounds(len(runs))).ratio()


def mean(runs: Sequence[Row]) -> Measure:
    """The median of the rounds' mean latencies."""
    return medians.of_values([run["mean_ns"] for run in runs], rounds(len(runs))).measure()


def p95(results: Results, runs: Sequence[Row]) -> Measure:
    """The 95th percentile of all operations of all rounds: of the merged samples or histograms.

    Where neither was kept, it is the median of the percentiles that the client printed.
    """
    each = [steps_of(results, run["run_id"]) for run in runs]
    if not any(len(values) for values, _ in each):
        return medians.of_values([run["p95_ns"] for run in runs], rounds(len(runs))).measure()
    values, counts = merged(each)
    reached = np.cumsum(counts) / counts.sum()

    def at(q: float) -> float:
        return float(values[min(len(values) - 1, int(np.searchsorted(reached, q - 1e-12)))])

    value = at(TAIL)
    below = np.array([float(mine[known < value].sum()) for known, mine in each])
    equal = np.array([float(mine[known == value].sum()) for known, mine in each])
    totals = np.array([float(mine.sum()) for _, mine in each])
    return shares.quantile(TAIL, at, below, equal, totals, rounds(len(runs))).measure()


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

# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the client over rounds: medians with bounds, and a p95 of all operations together."""

from pathlib import Path

import pytest

from tlstax.analysis.experiment import client_figures
from tlstax.analysis.experiment.matrix_results import Results, Row


def results(samples: dict[int, list[int]], histograms: dict[int, list[tuple[int, int]]]) -> Results:
    return Results(Path(), {}, {}, {}, [], [], {}, {}, {}, samples, histograms)


def runs(count: int, **changes: int) -> list[Row]:
    made = {"operations_count": 1000, "elapsed_ns": 10**9, "mean_ns": 500, "p95_ns": 900, **changes}
    return [{"run_id": number, "server_start": 0, **made} for number in range(count)]


def test_rates_and_means_are_medians_with_bounds() -> None:
    mine = runs(8)
    mine[3] = {**mine[3], "operations_count": 10, "mean_ns": 90_000}
    rate, mean = client_figures.rate(mine, "operations_count"), client_figures.mean(mine)
    assert (rate.value, rate.high, rate.unit_count) == (1000, 1000, 8)
    assert rate.low is not None
    assert rate.low > 900, "one disturbed round"
    assert (mean.value_ns, mean.low_ns) == (500, 500)
    assert client_figures.rate(runs(3), "operations_count").unit_count == 3


@pytest.mark.parametrize("is_histogram", [False, True])
def test_p95_is_that_of_all_operations(is_histogram: bool) -> None:
    """Seven fast rounds and a slow one: a median of the rounds' p95s would not see it."""
    each = {n: [100] * 99 + [200] for n in range(7)} | {7: [1000] * 100}
    histograms = {
        n: [(value, values.count(value)) for value in sorted(set(values))]
        for n, values in each.items()
    }
    made = results({}, histograms) if is_histogram else results(each, {})
    found = client_figures.p95(made, runs(8))
    assert found.value_ns == 1000
    assert found.unit_count == 8
    assert found.low_ns is not None
    assert found.low_ns < 1000, "one round of eight decides"


def test_without_samples_it_is_the_median_of_what_the_client_printed() -> None:
    found = client_figures.p95(results({}, {}), runs(8))
    assert (found.value_ns, found.unit_count) == (900, 8)

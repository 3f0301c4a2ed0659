# SPDX-License-Identifier: GPL-2.0-only
"""Intervals contain what they estimate as often as they say; few marked differences are noise."""

import re
from pathlib import Path

import pytest

from tlstax.analysis.rows import round_units
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.tests.unit.statistics import marking, simulation, start_units
from tlstax.tests.unit.statistics.simulation import Case


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return list(simulation.cases())


def test_every_95_percent_interval_covers_93_percent(cases: list[Case]) -> None:
    claimed = [case for case in cases if case.has_interval]
    assert len(claimed) > 40
    assert [case for case in claimed if case.coverage < simulation.LEAST] == []


def test_rounds_of_a_few_starts_are_no_units_of_a_claim_about_the_server() -> None:
    """Why starts are units: 64 rounds of 8 starts, each taken for a unit."""
    count = 8 * start_units.ROUNDS_OF_START
    as_rounds = round_units.of_starts(dict.fromkeys(range(count), 0))
    assert as_rounds.units.count == count
    for _, make, truth in start_units.of_server_starts(simulation.normal, as_rounds):
        share, has_interval = simulation.covered(make, truth)
        assert has_interval
        assert share < 0.7


def test_fewer_units_claim_nothing(cases: list[Case]) -> None:
    few = [case for case in cases if not case.has_interval]
    assert {int(case.units.split()[0]) < LEAST_UNITS for case in few} == {True}
    assert min(case.coverage for case in few) < 0.5, "autocorrelated windows: why it is no 95 %"


def test_the_table_of_the_docs_is_the_simulated_one(cases: list[Case], repository: Path) -> None:
    text = (repository / "docs/statistics.md").read_text()
    rows = re.findall(r"^\| ([a-z0-9][^|]*) \| ([^|]*) \| ([0-9.]+) % \| ([^|]*) \|$", text, re.M)
    said = {(kind, units): (float(share), what) for kind, units, share, what in rows}
    assert said.keys() == {(case.kind, case.units) for case in cases}
    for case in cases:
        share, what = said[case.kind, case.units]
        assert share == pytest.approx(100 * case.coverage, abs=0.3), "make statistics-docs"
        assert (what == "95 % interval") == case.has_interval


@pytest.mark.parametrize(("count", "true_cells"), [(8, 0), (8, 5), (8, 15), (14, 5)])
def test_of_the_marked_cells_few_are_noise(count: int, true_cells: int) -> None:
    wrong, right = marking.false_share(count, true_cells)
    assert wrong <= 0.05
    if true_cells:
        assert right > 0.8, "a large difference is still marked"


def test_two_equal_recordings_have_hardly_ever_a_marked_step() -> None:
    assert marking.false_share_of_recordings(48) <= 0.05


def test_cells_judged_one_by_one_are_noise_more_often() -> None:
    wrong, _ = marking.false_share(8, 0, one_by_one=True)
    assert wrong > 0.4


@pytest.mark.parametrize("name", list(simulation.DISTRIBUTIONS))
def test_the_smallest_difference_is_seen_in_three_of_four_experiments(name: str) -> None:
    assert marking.seen_share(simulation.DISTRIBUTIONS[name], 8) >= 0.75

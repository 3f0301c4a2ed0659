# SPDX-License-Identifier: GPL-2.0-only
"""Thousands of hosts are judged as one host would be: the same p-values and intervals."""

import numpy as np
import pytest

from tlstax.analysis.statistics import many, medians, verdicts
from tlstax.analysis.statistics.units import Floats, blocks, rounds


@pytest.fixture(params=[(12, 12), (8, 30), (9, 5)], ids=str)
def sides(request: pytest.FixtureRequest) -> tuple[Floats, Floats]:
    """200 hosts with noise, some without some of their units."""
    random = np.random.default_rng(3)
    made = [random.lognormal(0, 0.3, (200, count)) for count in request.param]
    for side in made:
        side[random.random(side.shape) < 0.1] = np.nan
        side[0] = np.nan
        side[1] = 4.0
    return made[0], made[1]


def row(side: Floats, number: int) -> Floats:
    return np.append([np.nan], side[number])


@pytest.mark.parametrize("least", [0.0, 0.1])
@pytest.mark.parametrize("is_serial", [False, True])
def test_p_values_are_those_of_one(
    sides: tuple[Floats, Floats], is_serial: bool, least: float
) -> None:
    found = many.p_values(*sides, is_serial=is_serial, least=least)
    units = tuple((blocks if is_serial else rounds)(side.shape[1]) for side in sides)
    for number in range(len(found)):
        pair = row(sides[0], number), row(sides[1], number)
        one = verdicts.p_value(*pair, (units[0], units[1]), is_paired=False, least=least)
        assert one is None if np.isnan(found[number]) else found[number] == pytest.approx(one)


@pytest.mark.parametrize("is_serial", [False, True])
def test_intervals_are_those_of_one(sides: tuple[Floats, Floats], is_serial: bool) -> None:
    found = many.median_differences(*sides, is_serial=is_serial)
    units = tuple((blocks if is_serial else rounds)(side.shape[1]) for side in sides)
    for number in range(len(found.values)):
        pair = row(sides[0], number), row(sides[1], number)
        one = medians.difference(*pair, (units[0], units[1]), is_paired=False)
        if one.unit_count:
            assert found.values[number] == pytest.approx(one.value)
        if medians.has_interval(one.unit_count):
            assert (found.lows[number], found.highs[number]) == pytest.approx((one.low, one.high))
        else:
            assert np.isnan(found.lows[number])


def test_medians_of_rows_leave_out_units_without_a_value(sides: tuple[Floats, Floats]) -> None:
    for side in (*sides, sides[0][2:3], np.empty((0, 4)), np.array([[3.0, np.inf, 1.0]])):
        known = [row[np.isfinite(row)] for row in side]
        expected = [np.median(row) if len(row) else np.nan for row in known]
        assert many.medians(side) == pytest.approx(expected, nan_ok=True)

# SPDX-License-Identifier: GPL-2.0-only
"""How a day of short hours judges memory: at equal points of the hours, by lives."""

import random

import pytest

from tlstax.tests.bench.watch import short_day
from tlstax.tests.bench.watch.short_day import LIFE_HOURS, by_life, slope
from tlstax.tests.bench.watch.short_hours import HOUR_S


def points(lives: int, each: float) -> list[dict[str, float]]:
    """Memory that rises by 100 within each hour, and by `each` from life to life."""
    return [
        {
            "wall_s": float(second),
            "resident_bytes": second % HOUR_S / HOUR_S * 100
            + second // (HOUR_S * LIFE_HOURS) * each,
        }
        for second in range(lives * LIFE_HOURS * HOUR_S)
    ]


def test_what_rises_within_each_hour_is_no_growth() -> None:
    found = by_life(points(4, 0.0), [0, 2, 4, 6])
    assert [sorted(hours) for hours in found.values()] == [[0, 1]] * 4
    assert len({hours[at]["resident_bytes"] for hours in found.values() for at in hours}) == 1


def test_what_rises_from_life_to_life_is() -> None:
    found = by_life(points(9, 5.0), list(range(0, 18, 2)))
    assert slope([hours[1]["resident_bytes"] for hours in found.values()]).per_life == 5.0


def test_few_lives_have_no_interval() -> None:
    assert slope([1, 2, 3, 4, 5, 6, 7]) == (1.0, None)
    assert slope([1, 2, 3, 4, 5, 6, 7, 8]).half == pytest.approx(0.0)


def test_the_interval_has_the_slope_as_often_as_it_says() -> None:
    chance, runs = random.Random(1), 400
    hits = 0
    for _ in range(runs):
        found = slope([at * 3 + chance.gauss(0, 10) for at in range(9)])
        assert found.half is not None
        hits += abs(found.per_life - 3) <= found.half
    assert 0.92 <= hits / runs <= 0.98


def test_the_first_life_is_left_out() -> None:
    assert short_day.told([5.0, 5.0]) == ""
    assert short_day.told([5.0, 6.0, 7.0]) == "+1.0 (3 lives)"

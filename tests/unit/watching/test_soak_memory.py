# SPDX-License-Identifier: GPL-2.0-only
"""How the soak of a watch divides its time, and judges memory: after a warm-up, by load."""

import pytest

from tlstax.tests.bench.watch import memory_curve
from tlstax.tests.bench.watch.memory_curve import WARM_UP_S, Curve, Point, Settled
from tlstax.tests.bench.watch.soak import lengths

LIVES = ("first", "second", "third")
LOADS = ("idle", "saturated")
MB = 1_000_000


def soak(stretch_s: float, *sizes: int) -> list[Settled]:
    names = [(life, load) for life in LIVES for load in LOADS]
    return [
        Settled(life, load, number * stretch_s, size * MB)
        for number, ((life, load), size) in enumerate(zip(names, sizes, strict=True))
    ]


def test_what_settles_in_the_first_life_is_no_growth() -> None:
    found = soak(1800, 80, 100, 101, 110, 101, 110)
    assert memory_curve.growth(found) == (0, 1.0)
    assert "+0.00 MB in 1.0 hours, within 1 MB" in memory_curve.verdict(found, MB)


def test_each_load_is_compared_with_itself_and_the_largest_growth_is_told() -> None:
    found = soak(1800, 80, 100, 101, 110, 104, 111)
    assert memory_curve.growth(found) == (3 * MB, 1.0)
    assert "+3.00 MB in 1.0 hours, above 1 MB" in memory_curve.verdict(found, MB)


def test_memory_of_a_soak_without_a_warm_up_is_not_judged() -> None:
    short = soak(WARM_UP_S / 2 - 1, 80, 100, 101, 110, 120, 130)
    assert memory_curve.growth(short) is None
    assert "not judged" in memory_curve.verdict(short, MB)
    assert memory_curve.growth(soak(WARM_UP_S / 2, 80, 100, 101, 110, 120, 130)) is not None
    assert memory_curve.growth(short[:4]) is None


def test_a_short_process_of_the_watch_does_not_count() -> None:
    curve = Curve(lambda: 7)
    assert curve.median_since(0.0) == 7
    curve.points = [Point(at, 200 if at == 5 else 100) for at in range(10)]
    assert curve.median_since(4.0) == 100
    assert next(curve.lines()).split() == ["0.0", "min", "0.00", "MB"]


def test_a_curve_is_drawn_meanwhile_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_curve, "EVERY_S", 0.001)
    with Curve(lambda: 7).drawn() as curve:
        while len(curve.points) < 3:
            pass
    count = len(curve.points)
    assert count >= 3
    assert [point.resident_bytes for point in curve.points] == [7] * count


def test_a_short_saturated_part_leaves_the_rest_to_the_others() -> None:
    assert lengths(3.0, 0) == {"idle": 900, "steady": 900, "saturated": 900}
    assert lengths(3.0, 150) == {"idle": 1275, "steady": 1275, "saturated": 150}

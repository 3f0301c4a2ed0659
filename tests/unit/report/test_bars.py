# SPDX-License-Identifier: GPL-2.0-only
"""Bars of the pages: each stands where its numbers say, on one axis that holds them all."""

import pytest

from tlstax.analysis.report.html import bars, waterfall
from tlstax.analysis.report.html.bars import Bar, Part


def measure(value: float, low: float | None = None, high: float | None = None) -> dict[str, object]:
    return {"value_ns": value, "low_ns": low, "high_ns": high, "unit_count": None}


def step(name: str, start: float, end: float, verdict: str) -> dict[str, object]:
    difference = measure(end - start, end - start - 10, end - start + 10)
    return {
        "name": name, "label": name, "verdict": verdict, "difference": difference,
        "start_ns": start, "end_ns": end,
    }  # fmt: skip


def test_an_axis_holds_values_below_zero_and_intervals() -> None:
    made = bars.picture([Bar("a", [Part(-100, 0, "red", "")], low=-100, high=300)])
    (row,) = made.rows
    assert (row.rects[0].x, row.rects[0].width) == (0, 25)
    assert (row.low, row.high, made.zero) == (0, 100, 25)
    assert all(0 <= tick.x <= 100 for tick in made.ticks)
    assert len(made.ticks) >= 3


def test_a_text_stands_inside_only_where_it_has_room() -> None:
    texts = ("computing 400 ms", "400 ms")
    made = bars.picture(
        [Bar("a", [Part(0, 900, "red", ""), Part(900, 1000, "red", "", texts), Part(0, 1, "", "")])]
    )
    wide, narrow, least = made.rows[0].rects[1].wide, made.rows[0].rects[1].narrow, made.rows[0]
    assert (wide, narrow) == ("400 ms", "")
    assert least.rects[2].wide == ""


def test_a_waterfall_goes_from_total_to_total_and_leaves_out_what_is_too_small() -> None:
    pair = {
        "totals": [measure(1000), measure(2000)],
        "steps": [
            step("grown", 1000, 1800, "more"),
            step("unseen", 1800, 1900, "no difference seen"),
            {**step("tiny", 1900, 1900.5, "more"), "difference": measure(0.5)},
            step("unexplained", 1900, 2000, "no difference seen"),
        ],
    }
    made = waterfall.of_pair(pair)
    assert [row.label for row in made.rows] == ["Before", "Grown", "Unseen", "Unexplained", "After"]
    assert [row.rects[0].opacity for row in made.rows] == [1, 1, 0, 0, 1]
    whole = made.rows[-1].rects[0].width
    assert made.rows[0].rects[0].width == pytest.approx(whole / 2)
    # Each bar goes on where the one before it ends.
    for row, following in zip(made.rows[1:-2], made.rows[2:-1], strict=True):
        assert following.rects[0].x == pytest.approx(row.joint)
    assert made.rows[-1].joint is None

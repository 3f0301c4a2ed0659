# SPDX-License-Identifier: GPL-2.0-only
"""Where the bars of a waterfall and the lines of distributions stand. Computes no number."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tlstax.analysis import quantities

Json = Mapping[str, Any]

LEFT: Final = 270.0
RIGHT: Final = 860.0
WIDTH: Final = 980.0
ROW: Final = 26.0
BAR: Final = 18.0
HEAD: Final = 24.0
LEAST: Final = 0.004
"""Of the axis: narrower steps are in the table only."""
CURVE_WIDTH: Final = 640.0
CURVE_HEIGHT: Final = 200.0
CURVE_LEFT: Final = 44.0
CURVE_FOOT: Final = 24.0
_NICE: Final = (1, 2, 5)


class Bar(NamedTuple):
    """A row of a waterfall."""

    label: str
    y: float
    x: float
    width: float
    style: str
    text: str
    text_x: float
    low_x: float | None
    high_x: float | None
    end_x: float
    title: str


class Tick(NamedTuple):
    """A line of the grid."""

    x: float
    text: str


class Picture(NamedTuple):
    """A waterfall."""

    bars: list[Bar]
    ticks: list[Tick]
    height: float


class Curves(NamedTuple):
    """Two cumulative distributions of one phase."""

    phase: str
    before: str
    after: str
    ticks: list[Tick]


def waterfall(pair: Json) -> Picture:
    """From the total before, step by step, to the total after."""
    first, last = pair["totals"]
    steps = pair["steps"]
    edges = [0.0, first["value_ns"], last["value_ns"]]
    for step in steps:
        edges += [step["start_ns"], step["end_ns"]]
    for total in (first, last):
        edges += [total["high_ns"] or 0.0]
    low, high = float(min(edges)), float(max(edges))
    scale = (RIGHT - LEFT) / ((high - low) or 1.0)

    def at(value_ns: float) -> float:
        return LEFT + (min(max(value_ns, low), high) - low) * scale

    least = LEAST * (high - low)
    shown = [
        step
        for step in steps
        if abs(step["difference"]["value_ns"]) >= least or step["name"] == "unexplained"
    ]
    rows = [("Before", first, 0.0, first["value_ns"], "end", 0.0)]
    for step in shown:
        style = step["verdict"] if step["verdict"] in ("more", "less") else "unseen"
        name = step["label"][:1].upper() + step["label"][1:]
        rows.append((name, step["difference"], step["start_ns"], step["end_ns"], style, 1.0))
    rows.append(("After", last, 0.0, last["value_ns"], "end", 0.0))
    bars = []
    for index, (label, measure, start, end, style, is_step) in enumerate(rows):
        origin = start if is_step else 0.0
        ends = [
            None if measure[key] is None else at(origin + measure[key])
            for key in ("low_ns", "high_ns")
        ]
        x, right = sorted((at(start), at(end)))
        text = (
            quantities.time_change(measure["value_ns"])
            if is_step
            else quantities.time(measure["value_ns"])
        )
        interval = quantities.time_interval(
            measure["value_ns"], measure["low_ns"], measure["high_ns"]
        )
        bars.append(
            Bar(
                label,
                HEAD + index * ROW,
                x,
                max(right - x, 0.5),
                style,
                text,
                max(right, ends[1] or 0.0) + 8,
                ends[0],
                ends[1],
                at(end),
                f"{label}: {text} {interval}",
            )
        )
    ticks = [Tick(at(value), quantities.time(value)) for value in round_values(low, high)]
    return Picture(bars, ticks, HEAD + len(rows) * ROW + 6)


def round_values(low: float, high: float) -> list[float]:
    """Round values in [low, high], about five."""
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (*_NICE, 10) if power * nice >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, int(high // step) + 1)]


def curves(pair: Json) -> Curves | None:
    """The two distributions of a phase over a logarithmic axis; None where both are empty."""
    sides = [pair["before"]["buckets"], pair["after"]["buckets"]]
    edges = [item[key] for side in sides for item in side for key in ("low_ns", "high_ns")]
    positive = [float(value) for value in edges if value > 0]
    if not positive:
        return None
    low, high = math.log10(min(positive)), math.log10(max(positive))
    span = (high - low) or 1.0

    def at(value_ns: float) -> float:
        place = (math.log10(max(value_ns, 10**low)) - low) / span
        return CURVE_LEFT + place * (CURVE_WIDTH - CURVE_LEFT - 10)

    paths = [_path(side, at) for side in sides]
    ticks = [
        Tick(at(value), quantities.time(value))
        for power in range(math.floor(low), math.ceil(high) + 1)
        if 10**low <= (value := 10.0**power) <= 10**high
    ]
    return Curves(pair["phase"], paths[0], paths[1], ticks)


def _path(buckets: Sequence[Json], at: Callable[[float], float]) -> str:
    """A line through the upper ends of the buckets."""
    if not buckets:
        return ""
    points = [(at(buckets[0]["low_ns"]), 0.0)]
    points += [(at(item["high_ns"]), item["cumulative"]) for item in buckets]
    top = CURVE_HEIGHT - CURVE_FOOT
    return "M" + "L".join(f"{x:.1f} {top - share * (top - 8):.1f}" for x, share in points)

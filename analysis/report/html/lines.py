# SPDX-License-Identifier: GPL-2.0-only
"""Lines and dots on two axes: where they stand. Computes no number of the document."""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tlstax.analysis import quantities

WIDTH: Final = 760.0
HEIGHT: Final = 280.0
LEFT, RIGHT, TOP, FOOT = 70.0, 12.0, 12.0, 34.0
COLOURS: Final = 5  # --series-0 .. --series-4


class Tick(NamedTuple):
    """A line of the grid."""

    at: float
    text: str


class Line(NamedTuple):
    """One series."""

    name: str
    colour: int
    dashed: bool
    path: str
    dots: list[tuple[float, float]]
    bars: list[tuple[float, float, float]]  # x, low y, high y


class Picture(NamedTuple):
    """One chart."""

    title: str
    text: str
    x_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]


Scale = Callable[[float], float]


def cumulative(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Picture:
    """Distributions over a logarithmic axis of time: (time in ns, share of all) by name."""
    least = min(time for _, points in series for time, _ in points if time > 0)
    values = [math.log10(max(time, least)) for _, points in series for time, _ in points]
    x, y = scale(values, LEFT, WIDTH - RIGHT), scale([0.0, 1.0], HEIGHT - FOOT, TOP)
    lines = []
    for number, (name, points) in enumerate(series):
        places = [(x(math.log10(max(time, least))), y(share)) for time, share in points]
        lines.append(Line(name, number % COLOURS, number >= COLOURS, path(places), [], []))
    return Picture(
        title,
        "Share of operations that took no longer.",
        "latency, logarithmic",
        decades(min(values), max(values), x),
        [Tick(y(share), quantities.share(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        lines,
    )


def scale(values: Sequence[float], start: float, end: float) -> Scale:
    """From values to places."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def path(points: Sequence[tuple[float, float]]) -> str:
    """The data of an SVG path through the points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def decades(low: float, high: float, scale: Scale) -> list[Tick]:
    """Round times on a logarithmic axis: 1, 2 and 5 where there are few decades."""
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    values = [
        step * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for step in steps
    ]
    return [
        Tick(scale(math.log10(value)), quantities.time(value))
        for value in values
        if low - 0.02 <= math.log10(value) <= high + 0.02
    ]

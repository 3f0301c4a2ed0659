# SPDX-License-Identifier: GPL-2.0-only
"""Horizontal bars, of times or of shares: where each part, interval and line of the grid stands.

Places are per cent of the axis and of the height, so that one picture fits every page width
without a script. Computes no number of the document.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tlstax.analysis import quantities

WIDE_AXIS: Final = 800.0
"""Pixels of an axis on a screen, and on a telephone: whether a text has room in its part."""
NARROW_AXIS: Final = 270.0
LETTER: Final = 7.0
PADDING: Final = 8.0
_NICE: Final = (1, 2, 5, 10)


class Part(NamedTuple):
    """A part of a bar."""

    start: float
    end: float
    fill: str  # a colour, such as var(--state-on_cpu)
    title: str
    texts: tuple[str, ...] = ()  # what may stand inside, the longest first
    opacity: float = 1.0


class Bar(NamedTuple):
    """A bar with its name before it and its figure behind it."""

    label: str
    parts: Sequence[Part]
    text: str = ""
    low: float | None = None
    high: float | None = None
    joint: float | None = None  # where the next bar goes on


class Rect(NamedTuple):
    """A drawn part."""

    x: float
    width: float
    fill: str
    opacity: float
    title: str
    wide: str  # inside, on a screen
    narrow: str  # inside, on a telephone


class Row(NamedTuple):
    """A drawn bar."""

    label: str
    y: float
    rects: list[Rect]
    text: str
    text_x: float
    low: float | None
    high: float | None
    joint: float | None


class Tick(NamedTuple):
    """A line of the grid."""

    x: float
    text: str


class Picture(NamedTuple):
    """All bars."""

    rows: list[Row]
    ticks: list[Tick]
    zero: float


def picture(bars: Sequence[Bar], *, has_axis: bool = True) -> Picture:
    """Place the bars on one axis that holds them and their intervals."""
    edges = [0.0, *_edges(bars)]
    low, high = min(edges), max(edges)
    span = (high - low) or 1.0

    def at(value: float) -> float:
        return (value - low) / span * 100

    step = 100 / max(len(bars), 1)
    rows = [
        Row(
            bar.label,
            index * step,
            [_rect(part, at) for part in bar.parts],
            bar.text,
            at(max(_edges([bar]), default=0.0)),
            None if bar.low is None else at(bar.low),
            None if bar.high is None else at(bar.high),
            None if bar.joint is None else at(bar.joint),
        )
        for index, bar in enumerate(bars)
    ]
    values = round_values(low, high) if has_axis else []
    ticks = [Tick(at(value), quantities.time(value)) for value in values]
    return Picture(rows, ticks, at(0.0))


def _edges(bars: Iterable[Bar]) -> list[float]:
    return [
        float(edge)
        for bar in bars
        for edge in (
            *(edge for part in bar.parts for edge in (part.start, part.end)),
            bar.low,
            bar.high,
        )
        if edge is not None
    ]


def _rect(part: Part, at: Callable[[float], float]) -> Rect:
    left, right = sorted((at(part.start), at(part.end)))
    wide, narrow = (
        next((text for text in part.texts if _fits(text, (right - left) / 100 * axis)), "")
        for axis in (WIDE_AXIS, NARROW_AXIS)
    )
    return Rect(left, right - left, part.fill, part.opacity, part.title, wide, narrow)


def _fits(text: str, pixels: float) -> bool:
    return LETTER * len(text) + PADDING < pixels


def round_values(low: float, high: float) -> list[float]:
    """Round values in [low, high], about five."""
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in _NICE if power * nice >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, int(high // step) + 1)]

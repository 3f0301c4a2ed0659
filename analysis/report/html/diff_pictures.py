# SPDX-License-Identifier: GPL-2.0-only
"""Where the lines of two distributions stand. Computes no number."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tlstax.analysis import quantities

Json = Mapping[str, Any]

CURVE_WIDTH: Final = 640.0
CURVE_HEIGHT: Final = 200.0
CURVE_LEFT: Final = 44.0
CURVE_FOOT: Final = 24.0


class Tick(NamedTuple):
    """A line of the grid."""

    x: float
    text: str


class Curves(NamedTuple):
    """Two cumulative distributions of one phase."""

    phase: str
    before: str
    after: str
    ticks: list[Tick]


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

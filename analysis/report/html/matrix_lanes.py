# SPDX-License-Identifier: GPL-2.0-only
"""Where the lanes of client and server stand, of a cell and its baseline. Computes no number."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tlstax.analysis import quantities
from tlstax.analysis.report.html.diff_pictures import HEAD, RIGHT, ROW, round_values

Json = Mapping[str, Any]

LEFT: Final = 150.0
KINDS: Final = {
    "cpu": "computing",
    "runnable": "waiting for a CPU",
    "wait": "other waits",
    "peer": "waiting for the other side",
}
LETTER: Final = 6.5  # about as wide as one is
_ROWS: Final = tuple(
    (lane, which) for lane in ("client", "server") for which in ("before", "after")
)


class Bar(NamedTuple):
    """A part of a lane."""

    kind: str
    x: float
    y: float
    width: float
    text: str  # where it has room
    title: str


class Tick(NamedTuple):
    """A line of the grid."""

    at: float
    text: str


class Lanes(NamedTuple):
    """Two sides, twice."""

    bars: list[Bar]
    names: list[tuple[str, float]]
    ticks: list[Tick]
    height: float


def lanes(pair: Json) -> Lanes | None:
    """Client and server of the baseline and the cell on one axis; None where there are none."""
    if pair["both_sides"] is None:
        return None
    parts = [part for part in pair["both_sides"]["parts"] if part["lane"] != "between"]
    highest = max(_end(part, which) for part in parts for which in ("before", "after")) or 1.0
    scale = (RIGHT - LEFT) / highest
    bars, names = [], []
    for row, (lane, which) in enumerate(_ROWS):
        y = HEAD + row * ROW
        names.append((f"{lane}, {'baseline' if which == 'before' else 'cell'}", y + 14))
        for part in parts:
            time_ns = part[which]["value_ns"]
            if part["lane"] != lane or time_ns <= 0:
                continue
            time, width = quantities.time(time_ns), time_ns * scale
            label = part["label"].replace(": CPU", "")
            fitting = (text for text in (f"{label} {time}", time) if len(text) * LETTER < width)
            x = LEFT + _start(part, which) * scale
            title = f"{part['label']}: {time}"
            bars.append(Bar(part["kind"], x, y, width, next(fitting, ""), title))
    ticks = [
        Tick(LEFT + value * scale, quantities.time(value)) for value in round_values(0.0, highest)
    ]
    return Lanes(bars, names, ticks, HEAD + len(_ROWS) * ROW + 2)


def _start(part: Json, which: str) -> float:
    return float(part["starts_ns"][which == "after"])


def _end(part: Json, which: str) -> float:
    return _start(part, which) + float(part[which]["value_ns"])

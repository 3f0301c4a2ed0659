# SPDX-License-Identifier: GPL-2.0-only
"""The units that vary independently: server starts or rounds, or blocks of one recording.

A statistic is computed for each row of `unit_weights`: the first row is all units together, each
other row is one unit alone. `medians.estimate` makes a number with its bounds of the result:

    weights = unit_weights(round_count)
    estimate(weights @ times_ns / (weights @ operations), rounds(round_count)).measure()

Neighbouring windows of a recording resemble each other, so they are no units. They are merged into
blocks, and intervals over blocks are made for 99 %: so they cover 95 % even if neighbouring windows
have an autocorrelation of 0.8 (docs/statistics.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tlstax.collectors.capture.order_statistics import LEAST_UNITS

Floats = npt.NDArray[np.float64]

LEAST_RANGE: Final = 4
"""Fewer units than this say nothing about how much they differ: no finding rests on them."""
LEAST_WINDOWS: Final = 48
"""Windows of LEAST_UNITS blocks; fewer are merged into fewer blocks."""
_BLOCK_WINDOWS: Final = 10
"""Windows of a block where there are more blocks than LEAST_UNITS."""
MOST_BLOCKS: Final = 30


@dataclass(frozen=True)
class Units:
    """How many units there are, and whether they are neighbours in one recording."""

    count: int
    name: str = "rounds"
    """A plural, for people."""
    is_serial: bool = False
    are_starts: bool = False
    """Whether they are starts of a server, each with all of its rounds."""

    @property
    def have_interval(self) -> bool:
        """Whether there are enough for a 95 % interval."""
        return self.count >= LEAST_UNITS

    def limited_to(self, count: int) -> "Units":
        """The same kind of units, as many as had a value."""
        return replace(self, count=count)


def rounds(count: int, name: str = "rounds") -> Units:
    """Rounds of an experiment, which are interleaved and therefore independent."""
    return Units(count, name)


def server_starts(count: int) -> Units:
    """Starts of a server, each with all of its rounds: the units of a claim about the server."""
    return Units(count, "server starts", are_starts=True)


def blocks(count: int) -> Units:
    """Blocks of neighbouring windows of one recording."""
    return Units(count, "blocks of windows", is_serial=True)


def block_numbers(lengths: Sequence[int], most: int = MOST_BLOCKS) -> list[int]:
    """The block of each window in order of time, by the windows' lengths in any unit.

    Blocks last as long as each other, as far as whole windows allow, and each has a window: a
    short block would differ from the others by its noise alone.
    """
    if len(lengths) < LEAST_WINDOWS:
        count = min(len(lengths), LEAST_UNITS - 1)
    else:
        count = max(len(lengths) // _BLOCK_WINDOWS, LEAST_UNITS)
    count = min(count, most)
    blocks: list[int] = []
    total, before = sum(lengths), 0
    for place, length in enumerate(lengths):
        last = blocks[-1] if blocks else 0
        by_time = before * count // total if total else 0
        needed = count - (len(lengths) - place)  # or later blocks would have no window
        blocks.append(max(min(by_time, last + 1, count - 1), last, needed))
        before += length
    return blocks


def unit_weights(count: int) -> Floats:
    """All units together, then each alone: 1 + count rows."""
    return np.vstack([np.ones((1, count)), np.eye(count)])


def interval_note(sides: Sequence[Units]) -> str:
    """How the bounds of a table were made, in a sentence; `sides` may differ in their count."""
    least = min(sides, key=lambda units: units.count, default=rounds(0))
    if least.count < 2:
        name = least.name.replace("s", "", 1) if least.count else least.name
        return f"No range: there is {least.count or 'no'} {name.removesuffix('s')}."
    names = dict.fromkeys(units.name for units in sides)
    of = " and ".join(
        f"{' and '.join(dict.fromkeys(str(one.count) for one in sides if one.name == name))} {name}"
        for name in names
    )
    if not least.have_interval:
        return (
            f"Medians of {of}, with their range: an interval needs {LEAST_UNITS}, so "
            "the differences may be noise."
        )
    return f"Medians of {of}, with the 95 % intervals of these medians."

# SPDX-License-Identifier: GPL-2.0-only
"""The unit that each window of a group belongs to: its round, server start or block in time."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tlstax.analysis.rows import round_units
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.statistics import medians, units
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import LEAST_RANGE, Floats, Units
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.collectors.capture.schema import Window

FRAGMENT: Final = 0.1
"""Windows shorter than this share of the longest are fragments."""


def without_fragments(windows: Sequence[Window]) -> list[Window]:
    """The windows that can be units of their own, in their order.

    A budget cuts some dense windows after 20 ms. Waits that are longer have begun before such a
    window and end after it, so that alone it is no picture of the load.
    """
    longest_ns = max((window.end_ns - window.start_ns for window in windows), default=0)
    return [w for w in windows if w.end_ns - w.start_ns >= FRAGMENT * longest_ns]


@dataclass(frozen=True)
class WindowUnits:
    """The units of some windows."""

    unit_of: Mapping[int, int]
    """By window."""
    units: Units


def of_group(group: Group, windows: Iterable[Window]) -> WindowUnits:
    """Rounds or server starts where a group has enough, else blocks of windows in order of time.

    The windows of too few rounds are too few blocks for an interval, however many they are. A
    fragment belongs to the block of the window before it, or to the first one.
    """
    mine = sorted(
        (window for window in windows if window.window_id in group.window_ids),
        key=lambda window: window.start_ns,
    )
    of = round_units.of_runs(group.runs)
    if of.units.count >= LEAST_RANGE:
        places = {run.run_id: of.unit_of[run.round] for run in group.runs}
        unit_of = {w.window_id: places[w.run_id] for w in mine if w.run_id in places}
        return WindowUnits(unit_of, of.units)
    most = LEAST_UNITS - 1 if group.runs else units.MOST_BLOCKS
    whole = without_fragments(mine)
    blocks = units.block_numbers([w.end_ns - w.start_ns for w in whole], most)
    starts = [window.start_ns for window in whole]
    unit_of = {
        window.window_id: blocks[max(0, bisect_right(starts, window.start_ns) - 1)]
        for window in mine
    }
    return WindowUnits(unit_of, units.blocks(max(blocks, default=-1) + 1))


def mean(values: Floats, places: Sequence[int] | NDArray[np.int64], of: Units) -> Estimate:
    """The mean of all values, within the bounds of the means of their units (`places`)."""
    sums = np.bincount(places, values, minlength=of.count)
    counts = np.bincount(places, minlength=of.count).astype(np.float64)
    counts[counts == 0] = np.nan
    return medians.around(float(values.mean()), np.append([np.nan], sums / counts), of)

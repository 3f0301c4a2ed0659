# SPDX-License-Identifier: GPL-2.0-only
"""The unit that each window of a group belongs to: its round, or its block in time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tlstax.analysis.rows.tables import Group
from tlstax.analysis.statistics import medians, units
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import LEAST_RANGE, Floats, Units
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.collectors.capture.schema import Window


@dataclass(frozen=True)
class WindowUnits:
    """The units of some windows."""

    unit_of: Mapping[int, int]
    """By window."""
    units: Units


def of_group(group: Group, windows: Iterable[Window]) -> WindowUnits:
    """Rounds where a group has enough of them, else blocks of its windows in order of time.

    The windows of too few rounds are too few blocks for an interval, however many they are.
    """
    mine = sorted(
        (window for window in windows if window.window_id in group.window_ids),
        key=lambda window: window.start_ns,
    )
    rounds = {run.run_id: run.round for run in group.runs}
    numbers = sorted(set(rounds.values()))
    if len(numbers) >= LEAST_RANGE:
        order = {number: at for at, number in enumerate(numbers)}
        unit_of = {w.window_id: order[rounds[w.run_id]] for w in mine if w.run_id in rounds}
        return WindowUnits(unit_of, units.rounds(len(numbers)))
    most = LEAST_UNITS - 1 if numbers else units.MOST_BLOCKS
    blocks = units.block_numbers(len(mine), most)
    unit_of = {window.window_id: at for window, at in zip(mine, blocks, strict=True)}
    return WindowUnits(unit_of, units.blocks(max(blocks, default=-1) + 1))


def mean(values: Floats, places: Sequence[int] | NDArray[np.int64], of: Units) -> Estimate:
    """The mean of all values, within the bounds of the means of their units (`places`)."""
    sums = np.bincount(places, values, minlength=of.count)
    counts = np.bincount(places, minlength=of.count).astype(np.float64)
    counts[counts == 0] = np.nan
    return medians.around(float(values.mean()), np.append([np.nan], sums / counts), of)

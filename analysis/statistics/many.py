# SPDX-License-Identifier: GPL-2.0-only
"""The tests and intervals of `verdicts` and `medians` for thousands of subjects at once.

Each row of a table is one subject (a host) and each column one of its units (an hour); NaN is a
unit without a value. The results are those of the functions for one subject, see
tests/unit/statistics/test_many.py.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tlstax.analysis.statistics.medians import SERIAL_LEVEL
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.statistics.verdicts import SERIAL_FACTOR, student_tails
from tlstax.collectors.capture.order_statistics import LEAST_UNITS, LEVEL, median_ranks


class Differences(NamedTuple):
    """Second less first, of each row; NaN where there is no value or no bound."""

    values: Floats
    lows: Floats
    highs: Floats


def p_values(before: Floats, after: Floats, *, is_serial: bool, least: float = 0.0) -> Floats:
    """How likely noise alone makes such a difference of unpaired units; NaN for too few.

    `least`: beyond a true difference of that size, as `verdicts.p_value` says.
    """
    counts, means, variances = zip(*(_moments(side) for side in (before, after)), strict=True)
    units = np.minimum(*counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.sqrt(variances[0] / counts[0] + variances[1] / counts[1])
        errors *= SERIAL_FACTOR if is_serial else 1.0
        beyond = np.maximum(np.abs(means[1] - means[0]) - least, 0.0)
        t = beyond / errors
    found: Floats = np.full(len(units), np.nan)
    for count in np.unique(units[units >= LEAST_UNITS]).tolist():
        rows = units == count
        found[rows] = student_tails(np.where(errors[rows] > 0, t[rows], 0.0), int(count) - 1)
    is_exact = (units >= LEAST_UNITS) & (errors == 0)
    found[is_exact] = (beyond == 0)[is_exact]
    return found


def median_differences(before: Floats, after: Floats, *, is_serial: bool) -> Differences:
    """The difference of the medians with its bounds, as `medians.difference` of unpaired sides."""
    first, second = (_medians(side, is_serial=is_serial) for side in (before, after))
    values = second.values - first.values
    below = np.hypot(second.values - second.lows, first.highs - first.values)
    above = np.hypot(second.highs - second.values, first.values - first.lows)
    return Differences(values, values - below, values + above)


def medians(side: Floats) -> Floats:
    """The median of each row; NaN where it has no unit."""
    if np.isfinite(side).all() and side.size:
        return np.asarray(np.median(side, axis=1))
    ordered, counts = _ordered(side)
    middle = np.stack([np.maximum(counts - 1, 0) // 2, counts // 2], axis=1)
    ends = np.take_along_axis(ordered, np.minimum(middle, ordered.shape[1] - 1), axis=1)
    found: Floats = ends.sum(axis=1) / 2
    return found


def _ordered(side: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The known units of each row in order, with NaN behind them, and how many they are."""
    known = np.isfinite(side)
    return np.sort(np.where(known, side, np.nan), axis=1), known.sum(axis=1)


def _moments(side: Floats) -> tuple[Floats, Floats, Floats]:
    """Count, mean and variance of the known units of each row."""
    known = np.isfinite(side)
    counts = known.sum(axis=1).astype(np.float64)
    filled = np.where(known, side, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = filled.sum(axis=1) / counts
        spread = np.where(known, side - means[:, None], 0.0)
        variances = (spread**2).sum(axis=1) / (counts - 1)
    return counts, means, variances


def _medians(side: Floats, *, is_serial: bool) -> Differences:
    """The median of each row with its bounds; rows with fewer than LEAST_UNITS have none."""
    ordered, counts = _ordered(side)
    found = Differences(medians(side), *(np.full(len(ordered), np.nan) for _ in range(2)))
    for count in np.unique(counts[counts >= LEAST_UNITS]).tolist():
        rows = counts == count
        known = ordered[rows, :count]
        rank, weight = median_ranks(count, SERIAL_LEVEL if is_serial else LEVEL)
        found.lows[rows] = (1 - weight) * known[:, rank - 1] + weight * known[:, rank]
        found.highs[rows] = (1 - weight) * known[:, -rank] + weight * known[:, -rank - 1]
    return found

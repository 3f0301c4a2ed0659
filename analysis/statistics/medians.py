# SPDX-License-Identifier: GPL-2.0-only
"""The median of units with its interval, from the order of the units alone.

The interval of a median lies between two of the ordered units (`order_statistics`). One disturbed
unit of eight moves neither the median nor a bound by much. Fewer than eight units have bounds, too:
their range.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.model.tables import Measure, Ratio
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.collectors.capture.order_statistics import LEVEL, median_bounds

SERIAL_LEVEL: Final = 0.99
"""Nominal level for blocks of one recording: with autocorrelation they cover 95 %."""
POWER: Final = 0.8
"""How often a difference of size `smallest` would be seen."""
_Z: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2)
_SMALLEST: Final = (_Z + NormalDist().inv_cdf(POWER)) / _Z
"""Smallest difference to be seen, in half-widths of an interval."""


class Estimate(NamedTuple):
    """A number with its bounds."""

    value: float
    low: float | None = None
    high: float | None = None
    unit_count: int | None = None
    smallest: float | None = None

    @classmethod
    def of(cls, measure: Measure) -> "Estimate":
        """A time that was written down."""
        return cls(*astuple(measure))

    def measure(self) -> Measure:
        """As a time."""
        return Measure(*self)

    def ratio(self) -> Ratio:
        """As a number without unit."""
        return Ratio(self.value, self.low, self.high, self.unit_count)


def estimate(values: Floats, units: Units) -> Estimate:
    """The median of all rows but the first, with its interval or the range of the rows.

    Rows that are not finite (a unit without operations) are left out. A single unit, or none, has
    no bounds; without any the value is that of the first row.
    """
    known = np.sort(values[1:][np.isfinite(values[1:])])
    units = units.limited_to(len(known))
    if not len(known):
        return Estimate(float(values[0]), unit_count=0)
    middle = float(np.median(known))
    if len(known) == 1:
        return Estimate(middle, unit_count=1)
    low, high = bounds(known, units)
    return Estimate(middle, low, high, units.count)


def of_values(values: Sequence[float], units: Units) -> Estimate:
    """The median of plain values, one for each unit."""
    return estimate(np.array([math.nan, *values], dtype=np.float64), units)


def difference(
    before: Floats, after: Floats, sides: tuple[Units, Units], *, is_paired: bool
) -> Estimate:
    """What was added from `before` to `after`, unit by unit if they are pairs.

    Otherwise the medians are subtracted, and the bounds are combined from those of both sides
    (Zou and Donner 2008, "MOVER").
    """
    if is_paired:
        found = estimate(after - before, sides[0])
    else:
        first, second = estimate(before, sides[0]), estimate(after, sides[1])
        found = _combined(first, second)
    return found._replace(smallest=_smallest(found))


def ratio(
    before: Floats, after: Floats, sides: tuple[Units, Units], *, is_paired: bool
) -> Estimate:
    """`after` over `before`, as in `difference`; both are above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if is_paired:
            return estimate(after / before, sides[0])
        logs = np.log(before), np.log(after)
    first, second = (estimate(log, units) for log, units in zip(logs, sides, strict=True))
    found = _combined(first, second)
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Estimate(math.exp(found.value), low, high, found.unit_count)


def around(value: float, values: Floats, units: Units) -> Estimate:
    """A value that is no median (a mean, a total), with the bounds of the units around it.

    The bounds are widened where they do not contain it.
    """
    found = estimate(values, units)
    if found.low is None or found.high is None:
        return found._replace(value=value)
    return found._replace(value=value, low=min(found.low, value), high=max(found.high, value))


def has_interval(unit_count: int | None) -> bool:
    """Whether bounds over so many units are a 95 % interval."""
    return unit_count is None or Units(unit_count).have_interval


def bounds(ordered: Floats, units: Units) -> tuple[float, float]:
    """The interval of the median of sorted values, or their range where they are few."""
    return median_bounds(ordered.tolist(), SERIAL_LEVEL if units.is_serial else LEVEL)


def _combined(first: Estimate, second: Estimate) -> Estimate:
    """Second less first, of independent sides."""
    value = second.value - first.value
    counts = [one.unit_count or 0 for one in (first, second)]
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Estimate(value, unit_count=min(counts))
    if not has_interval(min(counts)):
        return Estimate(value, second.low - first.high, second.high - first.low, min(counts))
    return Estimate(
        value,
        value - math.hypot(second.value - second.low, first.high - first.value),
        value + math.hypot(second.high - second.value, first.value - first.low),
        min(counts),
    )


def _smallest(found: Estimate) -> float | None:
    """The difference that as many units would show in POWER of all repetitions."""
    if found.low is None or found.high is None or not has_interval(found.unit_count):
        return None
    return _SMALLEST * (found.high - found.low) / 2

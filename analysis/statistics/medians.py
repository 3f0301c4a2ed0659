# SPDX-License-Identifier: GPL-2.0-only
"""The median of units with its interval, from the order of the units alone.

The interval of a median lies between two of the ordered units. Their ranks follow from the binomial
distribution, whatever the distribution of the units is; between the two nearest ranks the bounds
are interpolated (Hettmansperger and Sheather 1986), so that the interval of eight units is neither
that of 93 % nor that of 99.2 %. One disturbed unit of eight moves neither the median nor a bound by
much. Fewer than eight units have bounds, too: their range.
"""

import math
from functools import cache
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.statistics.units import Floats, Units

LEVEL: Final = 0.95
SERIAL_LEVEL: Final = 0.99
"""Nominal level for blocks of one recording: with autocorrelation they cover 95 %."""
POWER: Final = 0.8
"""How often a difference of size `smallest` would be seen."""
_Z: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2)
_SMALLEST: Final = (_Z + NormalDist().inv_cdf(POWER)) / _Z
"""Smallest difference to be seen, in half-widths of an interval."""


class Estimate(NamedTuple):
    """A number with its bounds: the fields of a Measure or a Ratio."""

    value: float
    low: float | None = None
    high: float | None = None
    unit_count: int | None = None
    smallest: float | None = None


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
    if not units.have_interval:
        return float(ordered[0]), float(ordered[-1])
    rank, weight = _ranks(len(ordered), SERIAL_LEVEL if units.is_serial else LEVEL)
    low = (1 - weight) * ordered[rank - 1] + weight * ordered[rank]
    high = (1 - weight) * ordered[-rank] + weight * ordered[-rank - 1]
    return float(low), float(high)


@cache
def _ranks(count: int, level: float) -> tuple[int, float]:
    """The outer rank from each end, and the weight of the next inner one."""
    outside = 2 / 2**count
    rank = 1
    while True:
        more = 2 * math.comb(count, rank) / 2**count
        if outside + more > 1 - level:
            break
        outside += more
        rank += 1
    if outside > 1 - level:
        return 1, 0.0
    part = (1 - level - outside) / more
    return rank, (count - rank) * part / (rank + (count - 2 * rank) * part)


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

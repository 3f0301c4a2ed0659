# SPDX-License-Identifier: GPL-2.0-only
"""Shares of samples and quantiles of histograms, where samples of a unit resemble each other.

Samples of one round or block are not independent, so a binomial interval over all of them is too
narrow. The differences between the units say by how much (Kish's design effect): the interval is
Wilson's for as many independent samples as these are worth, with Student's t for the number of
units. A quantile's interval is that of the share of values below it, read from the merged histogram
(Woodruff 1952).
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Final

from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.analysis.statistics.verdicts import SERIAL_FACTOR
from tlstax.collectors.capture.order_statistics import LEVEL

_Z: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2)
# Student's t at 97.5 % for 1..30 degrees of freedom (any table of the distribution).
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def t_quantile(freedom: int) -> float:
    """Student's t at 97.5 %."""
    return _T[freedom - 1] if freedom <= len(_T) else _Z


def wilson(hits: float, total: float, z: float = _Z) -> tuple[float, float]:
    """The Wilson score interval of a share of independent samples; (0, 1) without samples."""
    if total <= 0:
        return 0.0, 1.0
    share = hits / total
    spread = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / spread
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / spread
    return max(0.0, centre - half), min(1.0, centre + half)


def share(hits: Floats, totals: Floats, units: Units) -> Estimate:
    """The share of all samples together; `hits` and `totals` are the samples of each unit.

    Few units have the range of their own shares.
    """
    seen = totals > 0
    mine, whole = hits[seen], totals[seen]
    units = units.limited_to(len(whole))
    if not len(whole):
        return Estimate(math.nan, unit_count=0)
    value = float(mine.sum() / whole.sum())
    if units.count == 1:
        return Estimate(value, unit_count=1)
    if not units.have_interval:
        each = mine / whole
        return Estimate(value, float(each.min()), float(each.max()), units.count)
    low, high = _around(value, mine, whole, units)
    return Estimate(value, low, high, units.count)


def _around(value: float, mine: Floats, whole: Floats, units: Units) -> tuple[float, float]:
    """Wilson's interval for as many samples as these are worth."""
    total = float(whole.sum())
    binomial = value * (1 - value) / total
    errors = mine - value * whole
    between = float(errors @ errors) * units.count / (units.count - 1) / total**2
    if units.is_serial:
        between *= SERIAL_FACTOR**2
    effect = max(1.0, between / binomial) if binomial else 1.0
    t = t_quantile(units.count - 1)
    return wilson(value * total / effect, total / effect, t)


def quantile(
    q: float,
    at: Callable[[float], float],
    below: Floats,
    equal: Floats,
    totals: Floats,
    units: Units,
) -> Estimate:
    """A quantile of all values together, `at(q)`.

    For each unit: `below` are its values below the quantile, `equal` those that equal it, `totals`
    all of its values. Few units have no bounds.
    """
    seen = totals > 0
    under, ties, whole = below[seen], equal[seen], totals[seen]
    units = units.limited_to(len(whole))
    value = at(q)
    if not units.have_interval:
        return Estimate(value, unit_count=units.count)
    # Of the values that equal the quantile, as many count as make the share q.
    part = (q * whole.sum() - under.sum()) / ties.sum() if ties.any() else 0.0
    mine = under + min(1.0, max(0.0, float(part))) * ties
    low, high = _around(q, mine, whole, units)
    return Estimate(value, min(value, at(low)), max(value, at(high)), units.count)

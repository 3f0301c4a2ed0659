# SPDX-License-Identifier: GPL-2.0-only
"""A part of a time that samples tell roughly, and calibration stretches exactly but seldom.

The whole time is known everywhere. Each stretch is a random piece of the recording, with the exact
time of the part, and with the samples that point to the part (hits). The share of the part in the
stretches is an estimate with the error of any random pieces. The hits tell the share, too: as many
times that of the stretches as there are times their hits for the same whole time. That follows a
part that varies, with the error of few samples. Both are weighted by their errors. Where they
disagree by more than these explain, the stretches missed something, and the hits decide.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.shares import t_quantile
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.order_statistics import LEAST_UNITS

LEAST_STRETCHES: Final = LEAST_UNITS + 2
"""With fewer, nothing is estimated: what one in ten of them would show is often in none."""


class Stretch(NamedTuple):
    """A calibration stretch."""

    whole_ns: float
    part_ns: float
    hit_count: int


def part_of(stretches: Sequence[Stretch], whole_ns: float, hit_count: int) -> Estimate | None:
    """The part of `whole_ns`, in which there are `hit_count` hits, with its 95 % interval.

    None for fewer than LEAST_STRETCHES, or where there is no time in them.
    """
    count = len(stretches)
    wholes, parts, hits = np.array(stretches, dtype=np.float64).reshape(-1, 3).T
    if count < LEAST_STRETCHES or not wholes.sum() or not whole_ns:
        return None
    share = parts.sum() / wholes.sum()
    by_stretches = _variance_of_mean((parts - share * wholes) / wholes.mean())
    if not hits.sum():
        return _estimate(share, by_stretches, whole_ns, count)
    hit_ns = parts.sum() / hits.sum()
    rise = hit_count / whole_ns * wholes.sum() / hits.sum()
    moved = share * (rise - 1)
    of_stretches = _variance_of_mean((parts - hit_ns * hits) / wholes.mean())
    by_hits = max(1.0, rise) ** 2 * max(of_stretches, share**2 / hits.sum())
    by_hits += hit_ns**2 * hit_count / whole_ns**2
    by_stretches = max(by_stretches, moved**2 - by_hits)
    weight = by_stretches / (by_stretches + by_hits)
    return _estimate(share + weight * moved, weight * by_hits, whole_ns, count)


def _variance_of_mean(values: Floats) -> float:
    return float(values @ values) / (len(values) - 1) / len(values)


def _estimate(share: float, variance: float, whole_ns: float, count: int) -> Estimate:
    half = t_quantile(count - 1) * math.sqrt(variance)
    low, high = max(0.0, share - half), min(1.0, share + half)
    return Estimate(float(share * whole_ns), float(low * whole_ns), float(high * whole_ns), count)

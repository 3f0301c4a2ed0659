# SPDX-License-Identifier: GPL-2.0-only
"""A total that samples tell roughly, and calibration stretches exactly but only part of the time.

Each stretch is a random piece of the recording with an exact time, the operations done in it, and
the samples that point to the same work (hits). Operations and hits are known for the whole
recording, too. The time of an operation in the stretches is an estimate with the error of any
random piece. The hits tell the same, as a ratio: time of a hit in the stretches times all hits;
that follows work that varies, with the error of few samples. Both are weighted by their errors.
Where they disagree by more than these explain, the stretches missed something, and the hits decide.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.shares import t_quantile
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.order_statistics import LEAST_UNITS

LEAST_STRETCHES: Final = LEAST_UNITS
"""With fewer, nothing is estimated."""


class Stretch(NamedTuple):
    """A calibration stretch."""

    operation_count: int
    exact_ns: float
    hit_count: int


def total(stretches: Sequence[Stretch], operation_count: int, hit_count: int) -> Estimate | None:
    """The time of `operation_count` operations with `hit_count` hits, with its 95 % interval.

    None for fewer than LEAST_STRETCHES, or where nothing was done in them.
    """
    count = len(stretches)
    operations, exact_ns, hits = np.array(stretches, dtype=np.float64).reshape(-1, 3).T
    if count < LEAST_STRETCHES or not operations.sum() or not operation_count:
        return None
    each_ns = exact_ns.sum() / operations.sum()
    apart_ns = (exact_ns - each_ns * operations) / operations.mean()
    by_stretches = _variance_of_mean(apart_ns)
    if not hits.sum():
        return _estimate(each_ns, by_stretches, operation_count, count)
    hit_ns = exact_ns.sum() / hits.sum()
    rise = hit_count / operation_count * operations.sum() / hits.sum()
    moved_ns = each_ns * (rise - 1)
    left_ns = (exact_ns - hit_ns * hits) / operations.mean()
    by_hits = max(1.0, rise) ** 2 * max(_variance_of_mean(left_ns), each_ns**2 / hits.sum())
    by_hits += hit_ns**2 * hit_count / operation_count**2
    by_stretches = max(by_stretches, moved_ns**2 - by_hits)
    weight = by_stretches / (by_stretches + by_hits)
    return _estimate(each_ns + weight * moved_ns, weight * by_hits, operation_count, count)


def _variance_of_mean(values: Floats) -> float:
    return float(values @ values) / (len(values) - 1) / len(values)


def _estimate(each_ns: float, variance: float, operation_count: int, count: int) -> Estimate:
    half_ns = t_quantile(count - 1) * math.sqrt(variance)
    low_ns, high_ns = max(0.0, each_ns - half_ns), each_ns + half_ns
    return Estimate(
        float(each_ns * operation_count),
        float(low_ns * operation_count),
        float(high_ns * operation_count),
        count,
    )

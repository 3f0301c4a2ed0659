# SPDX-License-Identifier: GPL-2.0-only
"""Base-2 exponential histograms: OTLP's mapping of times to buckets, sums and quantiles.

Bucket i holds values above 2^(i / 2^SCALE) and up to 2^((i + 1) / 2^SCALE). Two histograms of one
scale are added bucket by bucket, which is exact: the sum is the histogram of all values together.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.statistics.units import Floats

SCALE: Final = 2
"""Four buckets to a factor of two. A quantile is interpolated in a bucket that ends 19 % above its
start; one more scale takes 1.6 times the bytes of the table (docs/measurements/fleet.md)."""
_STEPS: Final = 1 << SCALE
LEAST: Final = -1
"""The bucket of 1 ns and of less: 2^(-1/4) < 1 <= 2^0."""
MOST: Final = 63 * _STEPS
"""Beyond the bucket of 2^63 ns."""


class Histogram(NamedTuple):
    """Counts of neighbouring buckets."""

    first_bucket: int
    counts: list[int]


def bucket(value_ns: float) -> int:
    """The index of the bucket of a time."""
    if value_ns <= 1:
        return LEAST
    index = math.ceil(math.log2(value_ns) * _STEPS) - 1
    # The logarithm of an exact bound may be rounded to either side.
    if upper(index) < value_ns:
        index += 1
    elif upper(index - 1) >= value_ns:
        index -= 1
    return min(index, MOST)


def upper(index: int) -> float:
    """The upper, inclusive bound of a bucket in ns."""
    return math.exp2((index + 1) / _STEPS)


def lower(index: int) -> float:
    """The lower, exclusive bound of a bucket in ns."""
    return upper(index - 1)


def dense(counts: Mapping[int, int]) -> Histogram:
    """Counts by bucket as neighbouring buckets, from the first to the last that is not empty."""
    used = [index for index, count in counts.items() if count]
    if not used:
        return Histogram(0, [])
    first = min(used)
    return Histogram(first, [counts.get(index, 0) for index in range(first, max(used) + 1)])


def sparse(histogram: Histogram) -> dict[int, int]:
    """Counts by bucket, without empty ones."""
    return {histogram.first_bucket + at: n for at, n in enumerate(histogram.counts) if n}


def add(parts: Iterable[Histogram]) -> Histogram:
    """The histogram of all values together."""
    sums: dict[int, int] = defaultdict(int)
    for part in parts:
        for index, count in sparse(part).items():
            sums[index] += count
    return dense(sums)


def quantile(counts: Mapping[int, float], q: float) -> float | None:
    """A quantile, interpolated on the logarithm inside of its bucket; None of no values."""
    total = sum(counts.values())
    if total <= 0:
        return None
    below = 0.0
    for index, count in sorted(counts.items()):
        if below + count >= q * total:
            inside = (q * total - below) / count if count else 1.0
            return math.exp2((index + inside) / _STEPS)
        below += count
    return upper(max(counts))


def parts_below(buckets: Sequence[int], value_ns: float) -> Floats:
    """What part of each bucket lies at or below a value."""
    edge = math.log2(max(value_ns, 1.0)) * _STEPS
    parts: Floats = np.clip(edge - np.array(buckets, dtype=np.float64), 0.0, 1.0)
    return parts

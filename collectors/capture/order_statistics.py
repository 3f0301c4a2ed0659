# SPDX-License-Identifier: GPL-2.0-only
"""The interval of a median, from the order of the values alone: pure arithmetic that all rooms use.

The median lies between two of the ordered values as often as the binomial distribution says,
whatever the distribution of the values is. Between the two nearest ranks the bounds are
interpolated (Hettmansperger and Sheather 1986), so that the interval of eight values is neither
that of 93 % nor that of 99.2 %.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

LEAST_UNITS: Final = 8
"""Fewer values have no 95 % interval, but a range."""
LEVEL: Final = 0.95


def median_bounds(ordered: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The interval of the median of sorted values, or their range where they are few."""
    count = len(ordered)
    if count < LEAST_UNITS:
        return float(ordered[0]), float(ordered[-1])
    rank, weight = median_ranks(count, level)
    low = (1 - weight) * ordered[rank - 1] + weight * ordered[rank]
    high = (1 - weight) * ordered[-rank] + weight * ordered[-rank - 1]
    return float(low), float(high)


@cache
def median_ranks(count: int, level: float = LEVEL) -> tuple[int, float]:
    """The outer rank from each end, and the weight of the next inner one."""
    all_ways = 2**count
    outside, ways, rank = 2 / all_ways, count, 1
    while outside + (more := 2 * ways / all_ways) <= 1 - level:
        outside += more
        ways = ways * (count - rank) // (rank + 1)  # count over rank + 1, exactly
        rank += 1
    if outside > 1 - level:
        return 1, 0.0
    part = (1 - level - outside) / more
    return rank, (count - rank) * part / (rank + (count - 2 * rank) * part)

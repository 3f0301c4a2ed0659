# SPDX-License-Identifier: GPL-2.0-only
"""Intervals: Wilson for shares of samples, else a bootstrap over rounds or blocks of windows.

weights = resample_weights(round_count)
Measure(*estimate(weights @ times_ns / (weights @ operations), round_count))
"""

import math
from collections.abc import Collection
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.95
RESAMPLES: Final = 10_000
MIN_ROUNDS: Final = 4
"""Below this a bootstrap over rounds says nothing, and no interval is given."""
WIDE_ROUNDS: Final = 8
"""Below this the interval is little more than the range of the rounds."""
_SEED: Final = 20_131_013
_Z: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2)
# Student's t at 97.5 % for 1..30 degrees of freedom (any table of the distribution).
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share; (0, 1) without samples."""
    if total <= 0:
        return 0.0, 1.0
    share = hits / total
    spread = 1 + _Z * _Z / total
    centre = (share + _Z * _Z / (2 * total)) / spread
    half = _Z * math.sqrt(share * (1 - share) / total + _Z * _Z / (4 * total * total)) / spread
    return max(0.0, centre - half), min(1.0, centre + half)


class Estimate(NamedTuple):
    """A number with its 95 % interval, if there is one: the fields of a Measure or a Ratio."""

    value: float
    low: float | None = None
    high: float | None = None


def resample_weights(unit_count: int, stream: int = 0) -> Floats:
    """How often each unit (a round, a block of windows) counts: always the same rows.

    The first row is the estimate itself, every unit once. The other RESAMPLES rows draw the units
    with replacement; fewer than MIN_ROUNDS units have none. A statistic is computed from each row,
    and `estimate` makes a number with an interval of the result.

    Both arms of a round use the same rows, so that what the machine did to a round does not count
    as a difference between its arms. Units that are no pairs need draws of their own: another
    `stream`.
    """
    itself = np.ones((1, unit_count))
    if unit_count < MIN_ROUNDS:
        return itself
    generator = np.random.default_rng([_SEED, stream] if stream else _SEED)
    draws = generator.multinomial(unit_count, [1 / unit_count] * unit_count, size=RESAMPLES)
    return np.vstack([itself, draws.astype(np.float64)])


def estimate(values: Floats, unit_count: int) -> Estimate:
    """The value of the first row, with the 95 % interval of the other rows.

    Rows that are not finite (nothing to divide by) are left out; where they are most, or there are
    no other rows, there is no interval.
    """
    known = values[1:][np.isfinite(values[1:])]
    if len(values) == 1 or len(known) < len(values) // 2:
        return Estimate(float(values[0]))
    return Estimate(float(values[0]), *_interval(known, unit_count))


def block_numbers(count: int, most: int) -> list[int]:
    """The block of each of `count` things in order: neighbours together, `most` blocks at most."""
    size = -(-count // most) or 1
    return [place // size for place in range(count)]


def interval_note(unit_counts: Collection[int], units: str) -> str:
    """How intervals were made; `units` is a plural ("paired rounds"), each count one of a side."""
    least = min(unit_counts, default=0)
    if least < MIN_ROUNDS:
        few = f"1 {units.removesuffix('s')} is" if least == 1 else f"{least} {units} are"
        return f"No intervals: {few} fewer than {MIN_ROUNDS}, so the differences may be noise."
    counts = " and ".join(str(count) for count in dict.fromkeys(unit_counts))
    note = f"95 % intervals from {RESAMPLES:,} bootstrap resamples over {counts} {units}"
    if least < WIDE_ROUNDS:
        note += f"; below {WIDE_ROUNDS} they are about as wide as the range of the {units}"
    return f"{note}."


def _interval(values: Floats, unit_count: int) -> tuple[float, float]:
    """The 95 % interval from the resampled values of a statistic.

    Percentiles of a bootstrap over few units are too narrow; their levels are moved outwards as
    for a mean with n - 1 degrees of freedom (the expanded percentile interval, Hesterberg 2015).
    """
    t = _T[min(unit_count - 1, len(_T)) - 1]
    tail = NormalDist().cdf(-t * math.sqrt(unit_count / (unit_count - 1)))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def mean_estimate(values: Floats) -> Estimate:
    """The mean of independent values; without an interval for fewer than 30 of them."""
    mean = float(values.mean())
    if len(values) < 30:
        return Estimate(mean)
    half = _Z * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)

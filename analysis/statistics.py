# SPDX-License-Identifier: GPL-2.0-only
"""Intervals: Wilson for shares of samples, bootstrap over rounds for differences."""

import math
from statistics import NormalDist
from typing import Final

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


def resample_weights(round_count: int, stream: int = 0) -> Floats:
    """How often each round occurs in each resample: RESAMPLES x round_count, always the same.

    Rounds are drawn with replacement; both arms of a round are drawn together, so that what the
    machine did to a round does not count as a difference between its arms. Rounds that are no pairs
    need draws of their own: another `stream`.
    """
    generator = np.random.default_rng([_SEED, stream] if stream else _SEED)
    draws = generator.multinomial(round_count, [1 / round_count] * round_count, size=RESAMPLES)
    return draws.astype(np.float64)


def interval(values: Floats, round_count: int) -> tuple[float, float]:
    """The 95 % interval from the resampled values of a statistic.

    Percentiles of a bootstrap over few rounds are too narrow; their levels are moved outwards as
    for a mean with n - 1 degrees of freedom (the expanded percentile interval, Hesterberg 2015).
    """
    t = _T[min(round_count - 1, len(_T)) - 1]
    tail = NormalDist().cdf(-t * math.sqrt(round_count / (round_count - 1)))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def mean_interval(values: Floats) -> tuple[float | None, float | None]:
    """The 95 % interval of a mean of independent values; none for fewer than 30 of them."""
    if len(values) < 30:
        return None, None
    half = _Z * float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    return mean - half, mean + half

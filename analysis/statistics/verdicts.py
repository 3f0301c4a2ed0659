# SPDX-License-Identifier: GPL-2.0-only
"""Which of many differences are marked: at most 5 % of the marked ones are noise.

A table has dozens of cells. Judged one by one at 95 %, one or two of thirty equal cells would be
marked. So each has a p-value (Student's t of the differences between paired units, or Welch's with
the smaller side's degrees of freedom), and Benjamini and Hochberg's procedure decides how small
it must be among all cells. The cells share their rounds, so they are correlated; for two-sided
tests the procedure keeps its promise then, too (simulated in tests/unit/statistics). The interval
of a marked difference excludes zero as well, which one disturbed unit does not change.
"""

import math
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from tlstax.analysis.statistics.medians import Estimate, has_interval
from tlstax.analysis.statistics.units import Floats, Units

_Number = TypeVar("_Number", float, Floats)
FALSE_SHARE: Final = 0.05
"""Share of the marked differences that may be noise."""
MORE: Final = "more"
LESS: Final = "less"
NO_DIFFERENCE: Final = "no difference seen"
NO_INTERVAL: Final = "no interval"
SERIAL_FACTOR: Final = 1.5
"""By how much neighbouring blocks understate the error of their mean: sqrt((1 + r) / (1 - r)) for a
correlation r of 0.4."""


def judge(found: Estimate) -> str:
    """The verdict on a single difference: its interval excludes zero, or not, or there is none."""
    if found.low is None or found.high is None or not has_interval(found.unit_count):
        return NO_INTERVAL
    if found.low <= 0 <= found.high:
        return NO_DIFFERENCE
    return MORE if found.low > 0 else LESS


def p_value(
    before: Floats,
    after: Floats,
    sides: tuple[Units, Units],
    *,
    is_paired: bool,
    least: float = 0.0,
) -> float | None:
    """How likely noise alone makes such a difference; None for too few units.

    Values are those of `unit_weights`: the first row is not used. With `least` the hypothesis is
    that the true difference is no larger than that, in the unit of the values: Student's t is
    taken of what exceeds it, and p is 1 where nothing does.
    """
    parts = [_moments(one) for one in ([after - before] if is_paired else [before, after])]
    counts = [count for count, _, _ in parts]
    if not has_interval(min(counts)):
        return None
    mean = parts[-1][1] - (0.0 if is_paired else parts[0][1])
    beyond = max(abs(mean) - least, 0.0)
    error = math.sqrt(sum(variance / count for count, _, variance in parts))
    if sides[0].is_serial:
        error *= SERIAL_FACTOR
    if not error:
        return 0.0 if beyond else 1.0
    return student_tail(beyond / error, min(counts) - 1)


def _moments(values: Floats) -> tuple[int, float, float]:
    """Count, mean and variance of the units."""
    known = values[1:][np.isfinite(values[1:])]
    if len(known) < 2:
        return len(known), 0.0, 0.0
    return len(known), float(known.mean()), float(known.var(ddof=1))


def judge_all(found: Sequence[tuple[Estimate, float | None]]) -> list[str]:
    """The verdicts on the differences of one table, with their p-values."""
    known = [p for _, p in found if p is not None]
    bound = largest_marked(known)
    verdicts = []
    for one, p in found:
        verdict = judge(one)
        if verdict in (MORE, LESS) and (p is None or bound is None or p > bound):
            verdict = NO_DIFFERENCE
        verdicts.append(verdict)
    return verdicts


def largest_marked(p_values: Sequence[float] | Floats) -> float | None:
    """The largest p-value that is marked (Benjamini and Hochberg 1995), None if none is."""
    ordered = np.sort(np.asarray(p_values, dtype=np.float64))
    count = len(ordered)
    marked = ordered[ordered <= FALSE_SHARE * np.arange(1, count + 1) / max(count, 1)]
    return float(marked[-1]) if len(marked) else None


def largest_counting(p_values: Sequence[float] | Floats) -> float | None:
    """`largest_marked` of the differences that exceed the least that counts, by `p_value`.

    Only these can be named, so the others (p = 1) are not of the family. Given that a difference
    of normal units exceeds the least, it exceeds it by more no more often than p says: the normal
    distribution's hazard rate rises.
    """
    known = np.asarray(p_values, dtype=np.float64)
    return largest_marked(known[known < 1])


def normal_tail(change: float, error: float) -> float:
    """P of a change as large as this by chance, if errors are normal with this standard error."""
    if not error:
        return 0.0 if change else 1.0
    return math.erfc(abs(change) / error / math.sqrt(2))


def student_tail(t: float, freedom: int) -> float:
    """P(|T| > |t|) of Student's t with a whole number of degrees of freedom."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    inside = _student_inside(angle, math.cos(angle), math.sin(angle), freedom)
    return min(1.0, max(0.0, 1.0 - inside))


def student_tails(t: Floats, freedom: int) -> Floats:
    """`student_tail` of many values."""
    angles = np.arctan(np.abs(t) / math.sqrt(freedom))
    inside = _student_inside(angles, np.cos(angles), np.sin(angles), freedom)
    return np.clip(1.0 - inside, 0.0, 1.0)


def _student_inside(angle: _Number, cosine: _Number, sine: _Number, freedom: int) -> _Number:
    """P(|T| <= |t|) for the angle whose tangent is |t| / sqrt(freedom).

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    is_odd = freedom % 2
    if freedom == 1:
        return 2 / math.pi * angle
    square = cosine * cosine
    total = term = cosine if is_odd else cosine**0
    for step in range(2 + is_odd, freedom - 1, 2):
        term = term * (square * (step - 1) / step)
        total = total + term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total

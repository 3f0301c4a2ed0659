# SPDX-License-Identifier: GPL-2.0-only
"""How good a prediction's interval is, against "nothing changes": the interval score.

Gneiting and Raftery, 2007: the width, plus what the measured value lies outside, times 2 / alpha.
Less is better: a wide interval that is right and a narrow one that is wrong both pay. "No change"
is the interval of the recording that the prediction was made from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import Forecast

ALPHA = 0.05
"""What a 95 % interval may miss."""
ENOUGH = 0.9


@dataclass(frozen=True)
class Scored:
    """A predicted figure, and what was measured."""

    contains: bool
    score: float
    of_no_change: float

    @property
    def is_better(self) -> bool:
        """Whether it says more than that nothing changes."""
        return self.score < self.of_no_change


def interval_score(low: float, high: float, value: float) -> float:
    """The score of an interval for a value."""
    outside = max(0.0, low - value) + max(0.0, value - high)
    return high - low + 2 / ALPHA * outside


def of_forecast(line: Forecast, value: float) -> list[Scored]:
    """The score of a forecast; none of a refusal."""
    if line.then is None:
        return []
    low, high = _bounds(line.then)
    return [
        Scored(
            low <= value <= high,
            interval_score(low, high, value),
            interval_score(*_bounds(line.now), value),
        )
    ]


def _bounds(measure: Measure) -> tuple[float, float]:
    low, high = measure.low_ns, measure.high_ns
    value = measure.value_ns
    return (value if low is None else low), (value if high is None else high)


def summary(scored: Sequence[Scored]) -> str:
    """Coverage, and how often a prediction beats no prediction."""
    count = len(scored)
    inside = sum(one.contains for one in scored)
    better = sum(one.is_better for one in scored)
    return (
        f"{inside} of {count} intervals contain the measured value; "
        f"{better} of {count} have a better interval score than no change"
    )


def is_enough(scored: Sequence[Scored]) -> bool:
    """Whether both hold for nine of ten; nothing is not enough."""
    least = ENOUGH * len(scored)
    inside = sum(one.contains for one in scored)
    return bool(scored) and inside >= least and sum(one.is_better for one in scored) >= least

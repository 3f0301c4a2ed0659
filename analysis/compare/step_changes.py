# SPDX-License-Identifier: GPL-2.0-only
"""The steps from one arm to another: each with its bounds, its verdict and its place.

Steps are medians of the rounds, and medians do not add up. What is left of the whole is part of the
unexplained step, so that the steps sum to the difference.
"""

import math
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tlstax.analysis.compare.rounds import COLUMNS, ArmCosts
from tlstax.analysis.compare.waterfall_steps import BESIDE, KINDS, UNEXPLAINED, StepKind
from tlstax.analysis.model.difference import Step
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.statistics import medians, verdicts
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats, Units

LEFT_OVER: Final = UNEXPLAINED._replace(
    basis="exact",
    description="what is left because medians of steps do not add up to the median of the whole",
)
"""The unexplained step where the whole is the sum of the steps."""
_UNEXPLAINED: Final = COLUMNS.index(UNEXPLAINED)
Sides = tuple[Units, Units]


class StepChange(NamedTuple):
    """One step."""

    kind: StepKind
    before_ns: float
    after_ns: float
    found: Estimate
    p_value: float | None
    verdict: str
    start_ns: float
    end_ns: float

    @property
    def difference(self) -> Measure:
        """The change."""
        return self.found.measure()

    def step(self, sample_counts: list[int]) -> Step:
        """It as a step of the document; `sample_counts` are used if it rests on samples."""
        return Step(
            *self.kind,
            before_ns=self.before_ns,
            after_ns=self.after_ns,
            difference=self.difference,
            verdict=self.verdict,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            sample_counts=sample_counts if self.kind.basis == "sampled" else [],
            p_value=self.p_value,
        )


def step_changes(
    arms: tuple[ArmCosts, ArmCosts], sides: Sides, *, is_paired: bool, is_driven: bool = True
) -> list[StepChange]:
    """All steps in order, then those that no client waits for.

    Without a driver (`is_driven`) the client's steps are left out.
    """
    before, after = arms
    kinds = [
        (index, kind)
        for index, kind in enumerate(COLUMNS)
        if is_driven or kind.basis != "client" or kind == UNEXPLAINED
    ]
    totals = _costs(before.latency_ns, after.latency_ns, sides, is_paired=is_paired)
    on_path = {kind.name for kind in KINDS}
    found = {
        index: _costs(before.steps_ns[:, index], after.steps_ns[:, index], sides,
                      is_paired=is_paired)
        for index, _ in kinds
    }  # fmt: skip
    explained = [found[index] for index, kind in kinds if kind.name in on_path]
    rests = found[_UNEXPLAINED]
    found[_UNEXPLAINED] = (
        _left(totals[0], rests[0], [line[0] for line in explained]),
        _left(totals[1], rests[1], [line[1] for line in explained]),
        _left(totals[2], rests[2], [line[2] for line in explained]),
    )
    p_values = {
        index: verdicts.p_value(
            before.steps_ns[:, index], after.steps_ns[:, index], sides, is_paired=is_paired
        )
        for index, _ in kinds
    }
    said = verdicts.judge_all([(found[index][2], p_values[index]) for index, _ in kinds])
    lines, position_ns = [], totals[0].value
    for (index, kind), verdict in zip(kinds, said, strict=True):
        old, new, change = found[index]
        start_ns = 0.0 if kind in BESIDE else position_ns
        end_ns = start_ns + change.value
        position_ns = position_ns if kind in BESIDE else end_ns
        shown = kind if is_driven or kind != UNEXPLAINED else LEFT_OVER
        line = (shown, old.value, new.value, change, p_values[index], verdict, start_ns, end_ns)
        lines.append(StepChange(*line))
    return lines


def unexplained(arm: ArmCosts, units: Units) -> Measure:
    """What no step of an arm explains."""
    steps = [medians.estimate(arm.steps_ns[:, index], units) for index in range(len(KINDS))]
    whole = medians.estimate(arm.latency_ns, units)
    rest = medians.estimate(arm.steps_ns[:, _UNEXPLAINED], units)
    return _left(whole, rest, steps).measure()


def _costs(
    before: Floats, after: Floats, sides: Sides, *, is_paired: bool
) -> tuple[Estimate, Estimate, Estimate]:
    """Before, after, and the difference."""
    return (
        medians.estimate(before, sides[0]),
        medians.estimate(after, sides[1]),
        medians.difference(before, after, sides, is_paired=is_paired),
    )


def _left(whole: Estimate, rest: Estimate, steps: Collection[Estimate]) -> Estimate:
    """The whole less the steps; the bounds of the rounds' own rest, widened to contain it."""
    value = whole.value - math.fsum(step.value for step in steps)
    if rest.low is None or rest.high is None:
        return rest._replace(value=value)
    return rest._replace(value=value, low=min(rest.low, value), high=max(rest.high, value))


def on_path(lines: Sequence[StepChange]) -> list[StepChange]:
    """Those that sum to the difference."""
    return [line for line in lines if line.kind not in BESIDE]


def beside(lines: Sequence[StepChange]) -> list[StepChange]:
    """The others."""
    return [line for line in lines if line.kind in BESIDE]

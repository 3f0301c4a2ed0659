# SPDX-License-Identifier: GPL-2.0-only
"""How often tables of equal cells have a marked one, and how often a small difference is seen."""

from typing import Final

import numpy as np

from tlstax.analysis.statistics import medians, units, verdicts
from tlstax.analysis.statistics.units import Floats
from tlstax.tests.unit.statistics.simulation import REPETITIONS, autocorrelated, blocks_of
from tlstax.tests.unit.statistics.start_units import CENTRE, Draw, rows

CELLS: Final = 33
"""Steps of a waterfall."""


def cells(
    generator: np.random.Generator, count: int, true_cells: int, size: float
) -> list[tuple[Floats, Floats]]:
    """Both arms of CELLS steps: rounds move them together, and the last is what is left.

    The first `true_cells` differ by `size` standard deviations of a round's difference.
    """
    total = generator.normal(0.0, 3.0, count)
    found = []
    for place in range(CELLS - 1):
        change = generator.normal(0.0, 1.0, count) + 0.5 * total
        change += size * np.sqrt(3.25) * (place < true_cells)
        found.append((rows(np.full(count, CENTRE)), rows(CENTRE + change)))
        total = total - change + size * np.sqrt(3.25) * (place < true_cells)
    found.append((rows(np.full(count, CENTRE)), rows(CENTRE + total)))
    return found


def false_share(
    count: int, true_cells: int, *, one_by_one: bool = False, repetitions: int = 250
) -> tuple[float, float]:
    """The mean share of false ones among the marked cells, and of the true ones that are marked."""
    generator = np.random.default_rng(12)
    sides = units.rounds(count), units.rounds(count)
    wrong, right = 0.0, 0.0
    for _ in range(repetitions):
        found = [
            (
                medians.difference(before, after, sides, is_paired=True),
                verdicts.p_value(before, after, sides, is_paired=True),
            )
            for before, after in cells(generator, count, true_cells, 3.0)
        ]
        said = (
            [verdicts.judge(one) for one, _ in found] if one_by_one else verdicts.judge_all(found)
        )
        marked = [verdict in (verdicts.MORE, verdicts.LESS) for verdict in said]
        wrong += sum(marked[true_cells:]) / max(1, sum(marked))
        right += sum(marked[:true_cells]) / max(1, true_cells)
    return wrong / repetitions, right / repetitions


def false_share_of_recordings(windows: int, repetitions: int = 40) -> float:
    """How often any of CELLS equal steps of two autocorrelated recordings is marked."""
    generator = np.random.default_rng(14)
    wrong = 0
    for _ in range(repetitions):
        found = []
        for _ in range(CELLS):
            (before, first), (after, second) = (
                blocks_of(autocorrelated(generator, windows)) for _ in range(2)
            )
            pair = before, after, (first, second)
            found.append(
                (
                    medians.difference(*pair, is_paired=False),
                    verdicts.p_value(*pair, is_paired=False),
                )
            )
        said = verdicts.judge_all(found)
        wrong += any(verdict in (verdicts.MORE, verdicts.LESS) for verdict in said)
    return wrong / repetitions


def seen_share(draw: Draw, count: int, repetitions: int = REPETITIONS) -> float:
    """How often a difference of the size that is called the smallest to be seen is seen."""
    generator = np.random.default_rng(13)
    sides = units.rounds(count), units.rounds(count)
    none = rows(np.full(count, CENTRE))
    least = np.median(
        [
            medians.difference(none, rows(draw(generator, count)), sides, is_paired=True).smallest
            for _ in range(repetitions)
        ]
    )
    seen = 0
    for _ in range(repetitions):
        after = rows(draw(generator, count) + float(least))
        seen += verdicts.judge(medians.difference(none, after, sides, is_paired=True)) == "more"
    return seen / repetitions

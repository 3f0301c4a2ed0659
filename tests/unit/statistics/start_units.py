# SPDX-License-Identifier: GPL-2.0-only
"""Intervals over starts of a server, simulated: starts differ, and rounds less within each."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tlstax.analysis.rows import round_units
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats

ROUNDS_OF_START: Final = 8
START_COUNTS: Final = (5, 8, 14)
CENTRE: Final = 100.0
Draw = Callable[[np.random.Generator, int], Floats]


def rows(values: Floats) -> Floats:
    """As `unit_weights` makes them: all together, then each alone."""
    return np.concatenate([[values.mean()], values])


def starts(count: int) -> RoundUnits:
    """The units of rounds on so many starts of a server, as an analysis makes them."""
    numbers = range(count * ROUNDS_OF_START)
    return round_units.of_starts({number: number // ROUNDS_OF_START for number in numbers})


def of_server_starts(
    draw: Draw, of: RoundUnits
) -> Iterator[tuple[str, Callable[[np.random.Generator], Estimate], float]]:
    """The same where starts differ from each other as `draw` says, and rounds less in each."""
    places = [of.unit_of[number] for number in sorted(of.unit_of)]
    size = len(places)

    def by_unit(rounds: Floats) -> Floats:
        return rows(np.bincount(places, rounds) / np.bincount(places))

    def of_rounds(generator: np.random.Generator) -> Floats:
        each = np.repeat(draw(generator, size // ROUNDS_OF_START), ROUNDS_OF_START)
        return each + generator.normal(0.0, 5.0, size)

    def single(generator: np.random.Generator) -> Estimate:
        return medians.estimate(by_unit(of_rounds(generator)), of.units)

    def paired(generator: np.random.Generator) -> Estimate:
        before = 500.0 + generator.normal(0.0, 20.0, size)
        pair = by_unit(before), by_unit(before + of_rounds(generator))
        return medians.difference(*pair, (of.units, of.units), is_paired=True)

    yield "median", single, CENTRE
    yield "difference of paired arms", paired, CENTRE

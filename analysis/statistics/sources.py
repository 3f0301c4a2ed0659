# SPDX-License-Identifier: GPL-2.0-only
"""Several independent sources of error in one computed figure.

A figure is computed for rows: the first is the figure itself; then each source has rows in which
only that source varies: the units of a recording (one row each), or draws of measured costs. What
the sources add is combined as for independent errors: the root of the sum of squares, for each side
of the figure alone.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from tlstax.analysis.statistics.medians import bounds
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.collectors.capture.order_statistics import LEVEL

DRAWS: Final = "draws"
_DRAW_COUNT: Final = 400
_SEED: Final = 6


class ErrorSources:
    """The rows of a figure: which source each of them varies."""

    def __init__(self, units: Mapping[str, Units]) -> None:
        """`units` of each recording by its name; draws are always a source."""
        self.units = dict(units)
        self._slices: dict[str, slice] = {}
        start = 1
        for name, count in [*((n, u.count) for n, u in units.items()), (DRAWS, _DRAW_COUNT)]:
            self._slices[name] = slice(start, start + count)
            start += count
        self.size = start
        self._generator = np.random.default_rng(_SEED)

    @property
    def least_count(self) -> int:
        """Units of the recording that has fewest."""
        return min(units.count for units in self.units.values())

    def rows_of(self, source: str, values: Floats) -> Floats:
        """Values of a recording (all units, then each alone) as rows: others hold the median."""
        alone = values[1:]
        known = alone[np.isfinite(alone)]
        middle = float(np.median(known)) if len(known) else float(values[0])
        rows = np.full(self.size, middle)
        rows[self._slices[source]] = np.where(np.isfinite(alone), alone, middle)
        return rows

    def draw(self, value: float, low: float, high: float) -> Floats:
        """A measured value with its 95 % interval as rows: draws of a normal distribution."""
        rows = np.full(self.size, value)
        spread = (high - low) / 3.92
        rows[self._slices[DRAWS]] = self._generator.normal(value, spread, _DRAW_COUNT)
        drawn: Floats = np.maximum(rows, 0.05 * value)
        return drawn

    def interval(self, values: Floats, weights: Mapping[str, float]) -> tuple[float, float]:
        """The bounds of the first row; a source's variance counts `weights` times, else once."""
        value = float(values[0])
        below = above = 0.0
        for name, rows in self._slices.items():
            low, high = self._bounds(name, values[rows], value)
            below += weights.get(name, 1.0) * max(0.0, value - low) ** 2
            above += weights.get(name, 1.0) * max(0.0, high - value) ** 2
        return value - math.sqrt(below), value + math.sqrt(above)

    def _bounds(self, name: str, values: Floats, value: float) -> tuple[float, float]:
        if name == DRAWS:
            low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            return float(low), float(high)
        if len(values) < 2:
            return value, value
        return bounds(np.sort(values), self.units[name])

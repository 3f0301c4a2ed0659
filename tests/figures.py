# SPDX-License-Identifier: GPL-2.0-only
"""What a truth test compared, for the tables of docs/measurements/arm64.md.

A test notes what the program told, what was recorded, and how far apart both may be. The figures
are properties of the test in pytest's results (`--junitxml`).
"""

from typing import Final, NamedTuple

PROPERTY: Final = "figure"


class Figure(NamedTuple):
    """One comparison."""

    what: str
    told: float
    found: float
    bound: float
    """How far `found` may be from `told`."""

    @property
    def used(self) -> float:
        """The share of the bound that the difference takes; above 1 it failed."""
        if self.bound:
            return abs(self.found - self.told) / self.bound
        return 0.0 if self.found == self.told else float("inf")


noted: Final[list[Figure]] = []
"""Those of the running test."""


def note(what: str, told: float, found: float, bound: float = 0) -> None:
    """Keep a comparison."""
    noted.append(Figure(what, told, found, bound))


def worst(figures: list[Figure]) -> Figure:
    """The one that is nearest to its bound."""
    return max(figures, key=lambda figure: figure.used)

# SPDX-License-Identifier: GPL-2.0-only
"""Commands that misbehave, which the guards of the worker must see."""

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tlstax.tests.fuzz import texts


class Planted(texts.OfTlstax):
    """No mutants, but what the guards are for: mutant 0 is well, each other misbehaves."""

    cpu_s = 0.5
    wall_s = 5.0
    DEEDS: Final[tuple[Callable[[], int], ...]] = (
        lambda: print("well") or 0,
        lambda: dict[str, int]()["absent"],
        lambda: sum(1 for _ in itertools.count()),
        lambda: len(bytearray(2 << 30)),
        lambda: os._exit(0),
        lambda: print("a\x1b[2J") or 0,
        lambda: print("b\u202e", file=sys.stderr) or 0,
        lambda: 77,
        lambda: 5,
        lambda: print("Traceback (most recent call last):", file=sys.stderr) or 0,
        lambda: len(os.read(os.pipe()[0], 1)),  # never ends
    )

    def __init__(self, folder: Path) -> None:
        """Nothing is needed."""

    def make(self, number: int) -> str:
        """Name it."""
        return f"deed {number}"

    def commands(self, number: int, is_short: bool) -> list[list[str]]:
        """One."""
        return [[str(number)]]

    def run(self, command: list[str]) -> int:
        """Do it."""
        return self.DEEDS[int(command[0])]()

    def clear(self) -> None:
        """Nothing is written."""

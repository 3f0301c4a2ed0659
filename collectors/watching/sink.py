# SPDX-License-Identifier: GPL-2.0-only
"""What a watch passes its rows to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tlstax.collectors.capture.schema import Row


class Sink(Protocol):
    """Takes the rows of one recording after another."""

    def begin(self, facts: Sequence[Row]) -> None:
        """A recorder was attached: its `Meta` rows and the `Target`."""

    @property
    def source(self) -> int:
        """The source that the last window was filed under."""

    def window(self, rows: Sequence[Row]) -> bool:
        """A window ended; whether something happened for which its hour is worth keeping."""

    def recorded(self, capture: Path, source: int) -> None:
        """The raw windows of a source are in a capture, with names."""

    def detached(self) -> None:
        """The recorder was detached; another may follow."""

    def settle(self) -> None:
        """Nothing is recorded: write what could not be written, or was found out since."""

    def close(self) -> None:
        """Nothing follows."""

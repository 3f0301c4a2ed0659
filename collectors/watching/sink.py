# SPDX-License-Identifier: GPL-2.0-only
"""What a watch passes its rows to."""

from collections.abc import Sequence
from typing import Protocol

from tlstax.collectors.capture.schema import Row


class Sink(Protocol):
    """Takes the rows of one recording after another."""

    def begin(self, facts: Sequence[Row]) -> None:
        """A recorder was attached: its `Meta` rows and the `Target`."""

    def window(self, rows: Sequence[Row]) -> None:
        """A window ended."""

    def detached(self) -> None:
        """The recorder was detached; another may follow."""

    def close(self) -> None:
        """Nothing follows."""

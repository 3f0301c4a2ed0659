# SPDX-License-Identifier: GPL-2.0-only
"""What questions ask of an engine.

Questions use SQL that all three engines read: sums, joins, CASE and CAST. What differs is how a
list becomes rows, so each engine has a view `phase_bucket` for that: one row for each bucket of
`phase_latency`, with its index in `bucket` and its count in `ended_count`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.analysis.fleet.columns import PhaseLatency, Row

BUCKETS: Final = "phase_bucket"
BUCKET_COLUMNS: Final = ("host", "start_wall_ns", "source_id", "phase", "scale")
"""Columns of `phase_latency` that `phase_bucket` has, too."""


class Engine(ABC):
    """An open engine with a view of each table."""

    name: str

    @abstractmethod
    def query(self, sql: str) -> Any:
        """The rows as an Arrow table. Raises TlstaxError (FAILED) where the engine refuses."""

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds."""

    def refused(self, error: Exception) -> TlstaxError:
        """The error for a query that the engine could not answer."""
        lines = [line for line in str(error).splitlines() if line.strip()]
        return TlstaxError(
            f"{self.name} could not answer",
            " ".join(lines)[:600] or type(error).__name__,
            "Check the query; if files were compacted meanwhile, ask again",
        )


class Views(NamedTuple):
    """What to make views of."""

    files: Mapping[type[Row], list[Path]]
    data: Path

    @property
    def has_buckets(self) -> bool:
        """Whether `phase_bucket` can be made."""
        return PhaseLatency in self.files

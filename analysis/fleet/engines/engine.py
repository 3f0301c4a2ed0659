# SPDX-License-Identifier: GPL-2.0-only
"""What questions ask of an engine.

Questions use SQL that all three engines read: sums, joins, CASE and CAST. What differs is how a
list becomes rows, so each engine has a view `phase_bucket` for that: one row for each bucket of
`phase_latency`, with its index in `bucket`, its count in `ended_count`, and the recorded and the
observed time of its interval.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.analysis.fleet.columns import Interval, PhaseLatency, Row
from tlstax.collectors.capture.vocabulary import DETAIL_PHASES, HANDSHAKE_PHASES

BUCKETS: Final = "phase_bucket"
_COLUMNS: Final = ("host", "start_wall_ns", "source_id", "phase", "scale", "first_bucket", "counts")
_OF_HANDSHAKES: Final = ("handshake_wall", *HANDSHAKE_PHASES)
BUCKET_COLUMNS: Final = (*_COLUMNS[:5], "recorded_ns", "observed_ns")
"""Columns of `phase_bucket` besides the bucket and its count."""
OBSERVED_LATENCIES: Final = (
    f"SELECT {', '.join(f'phase_latency.{name} AS {name}' for name in _COLUMNS)}, "
    "whole.recorded_ns AS recorded_ns, CASE WHEN phase_latency.phase IN "
    f"({', '.join(repr(name) for name in _OF_HANDSHAKES)}) THEN whole.handshake_observed_ns "
    f"- CASE WHEN phase_latency.phase IN ({', '.join(map(repr, DETAIL_PHASES))}) "
    "THEN whole.partial_ns ELSE 0 END "
    "ELSE whole.ledger_observed_ns END AS observed_ns FROM phase_latency "
    "INNER JOIN interval whole ON phase_latency.host = whole.host "
    "AND phase_latency.start_wall_ns = whole.start_wall_ns "
    "AND phase_latency.source_id = whole.source_id"
)
"""The histograms with the time in which they were observed: what `phase_bucket` is made of."""


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
    lacking: Mapping[Path, tuple[str, ...]] = MappingProxyType({})
    """Columns that files of an earlier version do not have: they are 0, or ''."""

    def by_columns(self, table: type[Row]) -> dict[tuple[str, ...], list[Path]]:
        """The files of a table by the columns that they lack."""
        found: dict[tuple[str, ...], list[Path]] = {}
        for path in self.files[table]:
            found.setdefault(self.lacking.get(path, ()), []).append(path)
        return found

    @property
    def has_buckets(self) -> bool:
        """Whether `phase_bucket` can be made."""
        return PhaseLatency in self.files and Interval in self.files

# SPDX-License-Identifier: GPL-2.0-only
"""What questions ask of an engine, and how one is opened.

Questions use SQL that all three engines read: sums, joins, CASE and CAST. What differs is how a
list becomes rows, so each engine has a view `phase_bucket` for that: one row for each bucket of
`phase_latency`, with its index in `bucket` and its count in `ended_count`.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import PhaseLatency, Row
from tlstax.analysis.fleet.store.selection import Selection

ENGINES: Final[Mapping[str, str]] = {
    "duckdb": "tlstax.analysis.fleet.engines.duckdb_engine",
    "clickhouse": "tlstax.analysis.fleet.engines.clickhouse_engine",
    "spark": "tlstax.analysis.fleet.engines.spark_engine",
}
_PATTERNS: Final = frozenset("*?[]{}")
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


@contextmanager
def open_engine(name: str, selection: Selection, data: Path) -> Iterator[Engine]:
    """An engine over the chosen files. Raises TlstaxError (HOST) where it is not installed."""
    if name not in ENGINES:
        raise TlstaxError(
            f"there is no engine {name}",
            f"there are {', '.join(ENGINES)}",
            "Choose one of these",
            ExitCode.USAGE,
        )
    if found := sorted(_PATTERNS & set(str(data.resolve()))):
        raise TlstaxError(
            f"cannot read {data}",
            f"engines take {found[0]} in a path for a pattern",
            "Move the data set to a folder without such a character",
            ExitCode.USAGE,
        )
    module = importlib.import_module(ENGINES[name])
    engine: Engine = module.open_views(Views(selection.files, data.resolve()))
    try:
        yield engine
    finally:
        engine.close()

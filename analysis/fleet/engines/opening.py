# SPDX-License-Identifier: GPL-2.0-only
"""Open an engine by its name; only its own package is imported."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.engines.engine import Engine, Views
from tlstax.analysis.fleet.store.selection import Selection

ENGINES: Final[Mapping[str, str]] = {
    "duckdb": "tlstax.analysis.fleet.engines.duckdb_engine",
    "clickhouse": "tlstax.analysis.fleet.engines.clickhouse_engine",
    "spark": "tlstax.analysis.fleet.engines.spark_engine",
}
_PATTERNS: Final = frozenset("*?[]{}")


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
    engine: Engine = module.open_views(Views(selection.files, data.resolve(), selection.lacking))
    try:
        yield engine
    finally:
        engine.close()

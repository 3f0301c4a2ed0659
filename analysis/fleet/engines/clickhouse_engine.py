# SPDX-License-Identifier: GPL-2.0-only
"""ClickHouse, embedded (the Python package chdb), over the same files."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet.columns import Row, columns
from tlstax.analysis.fleet.engines.engine import (
    BUCKET_COLUMNS,
    BUCKETS,
    OBSERVED_LATENCIES,
    Engine,
    Views,
)
from tlstax.analysis.fleet.store.parquet_files import missing_package
from tlstax.collectors.capture.schema import table_name

TYPES: Final = {"int": "Int64", "float": "Float64", "str": "String", "list": "Array(Int64)"}
_SETTINGS: Final = "SETTINGS join_use_nulls = 1, prefer_column_name_to_alias = 1"


class ClickHouse(Engine):
    """A session with a view of each table."""

    name = "clickhouse"

    def __init__(self, session: Any) -> None:
        """Use `open_views`."""
        self._session = session

    def query(self, sql: str) -> Any:
        """See Engine."""
        try:
            return self._session.query(f"{sql} {_SETTINGS}", "ArrowTable")
        except RuntimeError as error:
            raise self.refused(error) from error

    def close(self) -> None:
        """See Engine."""
        self._session.close()


def open_views(views: Views) -> ClickHouse:
    """A session that reads the data set."""
    try:
        from chdb import session
    except ImportError as error:
        raise missing_package("chdb", "engines") from error
    made = session.Session()
    for table in views.files:
        made.query(f"CREATE VIEW {table_name(table)} AS {_reading(table, views)}")
    if views.has_buckets:
        names = ", ".join(BUCKET_COLUMNS)
        made.query(
            f"CREATE VIEW {BUCKETS} AS SELECT {names}, first_bucket + place - 1 AS bucket, "
            f"one AS ended_count FROM ({OBSERVED_LATENCIES}) observed "
            "ARRAY JOIN counts AS one, arrayEnumerate(counts) AS place"
        )
    return ClickHouse(made)


def _reading(table: type[Row], views: Views) -> str:
    parts = []
    for lacking, files in views.by_columns(table).items():
        there = [column for column in columns(table) if column.name not in lacking]
        shape = ", ".join(f"{column.name} {TYPES[column.kind]}" for column in there)
        names = ", ".join(
            f"defaultValueOfTypeName('{TYPES[column.kind]}') AS {column.name}"
            if column.name in lacking
            else column.name
            for column in columns(table)
        )
        parts += [
            f"SELECT {names} FROM file('{_text(pattern)}', 'Parquet', '{shape}')"
            for pattern in _patterns(files)
        ]
    names = ", ".join(column.name for column in columns(table))
    shape = ", ".join(f"{column.name} {TYPES[column.kind]}" for column in columns(table))
    return " UNION ALL ".join(parts) or f"SELECT {names} FROM null('{shape}') WHERE 0"


def _patterns(files: Sequence[Path]) -> list[str]:
    """The files as few patterns. A list in braces names parts of one level of the path."""
    by_hour: dict[Path, list[str]] = defaultdict(list)
    for path in files:
        by_hour[path.resolve().parent].append(path.name)
    by_date: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for hour, names in by_hour.items():
        by_date[hour.parent, _one_of(names)].append(hour.name)
    return [f"{date}/{_one_of(hours)}/{names}" for (date, names), hours in by_date.items()]


def _one_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(sorted(names))}}}"


def _text(text: str) -> str:
    return re.sub(r"([\\'])", r"\\\1", text)

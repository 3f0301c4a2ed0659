# SPDX-License-Identifier: GPL-2.0-only
"""ClickHouse, embedded (the Python package chdb), over the same files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet.columns import Row, columns, table_name
from tlstax.analysis.fleet.engines.engine import BUCKET_COLUMNS, BUCKETS, Engine, Views
from tlstax.analysis.fleet.store.parquet_files import missing_package

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
    for table, files in views.files.items():
        made.query(f"CREATE VIEW {table_name(table)} AS {_reading(table, files)}")
    if views.has_buckets:
        names = ", ".join(BUCKET_COLUMNS)
        made.query(
            f"CREATE VIEW {BUCKETS} AS SELECT {names}, first_bucket + place - 1 AS bucket, "
            "one AS ended_count FROM phase_latency "
            "ARRAY JOIN counts AS one, arrayEnumerate(counts) AS place"
        )
    return ClickHouse(made)


def _reading(table: type[Row], files: Sequence[Path]) -> str:
    names = ", ".join(column.name for column in columns(table))
    shape = ", ".join(f"{column.name} {TYPES[column.kind]}" for column in columns(table))
    if not files:
        return f"SELECT {names} FROM null('{shape}') WHERE 0"
    # A list in braces is a list of names; a brace or a comma in a name would end it.
    listed = ",".join(re.sub(r"([\\'])", r"\\\1", str(path.resolve())) for path in files)
    listed = listed if len(files) == 1 else f"{{{listed}}}"
    return f"SELECT {names} FROM file('{listed}', 'Parquet', '{shape}')"

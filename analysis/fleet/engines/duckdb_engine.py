# SPDX-License-Identifier: GPL-2.0-only
"""DuckDB, in this process: the engine for one machine."""

import os
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import SHARED, Row, columns
from tlstax.analysis.fleet.engines.engine import (
    BUCKET_COLUMNS,
    BUCKETS,
    OBSERVED_LATENCIES,
    Engine,
    Views,
)
from tlstax.analysis.fleet.store.parquet_files import missing_package
from tlstax.collectors.capture.schema import table_name

_TYPES: Final = {"int": "BIGINT", "float": "DOUBLE", "str": "VARCHAR", "list": "BIGINT[]"}


class DuckDb(Engine):
    """An in-memory database with a view of each table."""

    name = "duckdb"

    def __init__(self, connection: Any, views: Views) -> None:
        """Use `open_views`."""
        self._connection = connection
        self._views = views

    def query(self, sql: str) -> Any:
        """See Engine."""
        import duckdb

        try:
            return self._connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise self.refused(error) from error

    def limit(self, condition: str) -> None:
        """Let views have only rows that meet an SQL condition; those of stacks and frames keep all.

        A file may have rows of a whole day, and a day's stacks and frames stand where they were
        first seen.
        """
        for table in self._views.files:
            if table not in SHARED:
                self._connection.execute(
                    f"CREATE OR REPLACE VIEW {table_name(table)} AS SELECT * FROM "
                    f"({_reading(table, self._views)}) whole WHERE {condition}"
                )

    def read_only(self, sql: str) -> Any:
        """The answer to one statement that changes nothing.

        Raises TlstaxError: USAGE for another statement, FAILED where DuckDB refuses.
        """
        import duckdb

        try:
            statements = self._connection.extract_statements(sql)
        except duckdb.Error as error:
            raise self.refused(error) from error
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            raise TlstaxError(
                "cannot run this SQL",
                "only a single SELECT is run, since nothing may be changed",
                "Give one SELECT statement",
                ExitCode.USAGE,
            )
        return self.query(sql)

    def close(self) -> None:
        """See Engine."""
        self._connection.close()


def open_views(views: Views) -> DuckDb:
    """A database that reads the data set and nothing else, and writes nothing."""
    try:
        import duckdb
    except ImportError as error:
        raise missing_package("duckdb") from error
    connection = duckdb.connect(":memory:")
    threads = len(os.sched_getaffinity(0))
    for setting in (
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        f"threads = {threads}",
        "temp_directory = ''",
        "python_enable_replacements = false",
        "parquet_metadata_cache = true",
        f"allowed_directories = [{_text(str(views.data))}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")
    made = DuckDb(connection, views)
    try:
        _make_views(connection, views)
    except duckdb.Error as error:  # a file that is gone
        connection.close()
        raise made.refused(error) from error
    return made


def _make_views(connection: Any, views: Views) -> None:
    for table in views.files:
        connection.execute(f"CREATE VIEW {table_name(table)} AS {_reading(table, views)}")
    if views.has_buckets:
        names = ", ".join(BUCKET_COLUMNS)
        connection.execute(
            f"CREATE VIEW {BUCKETS} AS SELECT {names}, "
            "first_bucket + unnest(range(len(counts))) AS bucket, unnest(counts) AS ended_count "
            f"FROM ({OBSERVED_LATENCIES}) observed"
        )


def _reading(table: type[Row], views: Views) -> str:
    parts = []
    for lacking, files in views.by_columns(table).items():
        names = ", ".join(
            f"CAST({_literal(table, column.name)} AS {_TYPES[column.kind]}) AS {column.name}"
            if column.name in lacking
            else column.name
            for column in columns(table)
        )
        listed = ", ".join(_text(str(path.resolve())) for path in files)
        parts.append(f"SELECT {names} FROM read_parquet([{listed}], hive_partitioning = false)")
    empty = ", ".join(f"CAST(NULL AS {_TYPES[c.kind]}) AS {c.name}" for c in columns(table))
    return " UNION ALL ".join(parts) or f"SELECT {empty} WHERE false"


def _literal(table: type[Row], column: str) -> str:
    default = table._field_defaults[column]
    return _text(default) if isinstance(default, str) else str(default)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

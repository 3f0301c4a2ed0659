# SPDX-License-Identifier: GPL-2.0-only
"""Prints docs/fleet-clickhouse.sql, the tables of the data set for a ClickHouse server.

python -m tlstax.analysis.fleet.clickhouse_ddl > docs/fleet-clickhouse.sql
"""

import inspect
from typing import Any, Final

from tlstax.analysis.fleet.columns import (
    HOURLY,
    SCHEMA_VERSION,
    SHARED,
    TABLES,
    columns,
    keys,
)
from tlstax.collectors.capture.schema import table_name

_HEAD: Final = """\
-- Tables of a tlstax data set (version {version}) for a ClickHouse server.
-- Made by `python -m tlstax.analysis.fleet.clickhouse_ddl`: change columns.py, not this file.
--
-- `make test-fleet-engines` runs every statement in ClickHouse embedded (chdb). On a cluster, add
-- ON CLUSTER and make the engines ReplicatedReplacingMergeTree: no server has run that form.
--
-- Load the files of one tier, for example:
--   INSERT INTO tlstax.`interval` SELECT '1h', * FROM file(
--     'fleet/tier=1h/table=interval/date=*/hour=*/compacted.parquet', 'Parquet');
-- Compact before loading, so that a recording is in one file. Loading a recording again replaces
-- its rows when parts merge; SELECT ... FINAL sees the last ones at once. Files of version 1 lack
-- the last column of `interval` and `handshake`: name the others, and load such files apart.

CREATE DATABASE IF NOT EXISTS tlstax;
"""
_TYPES: Final = {
    "int": "Int64 CODEC(Delta, ZSTD)",
    "float": "Float64",
    "str": "LowCardinality(String)",
    "list": "Array(Int64)",
}


def ddl() -> str:
    """The text of docs/fleet-clickhouse.sql."""
    parts = [_HEAD.format(version=SCHEMA_VERSION)]
    return "\n".join([*parts, *(_create(table) for table in TABLES)])


def _create(table: type[Any]) -> str:
    summary = inspect.cleandoc(table.__doc__ or "").splitlines()[0]
    lines = ["    tier LowCardinality(String)"] if table not in HOURLY else []
    lines += [f"    {one.name} {_type(one.name, one.kind)}" for one in columns(table)]
    order = ["tier"] if table not in HOURLY else []
    known = keys(table)
    host = ["host"] if "host" in table._fields else []
    late = [name for name in ("start_wall_ns", "source_id") if name in table._fields]
    order += [*host, *(name for name in known if name not in (*host, *late)), *late]
    by_date = "toDate(fromUnixTimestamp64Nano(start_wall_ns))"
    note = " Rows of several recordings are alike." if table in SHARED else ""
    return (
        f"-- {summary}{note}\n"
        f"CREATE TABLE IF NOT EXISTS tlstax.`{table_name(table)}` (\n"
        + ",\n".join(lines)
        + f"\n) ENGINE = ReplacingMergeTree PARTITION BY {by_date}\n"
        + f"ORDER BY ({', '.join(order)});\n"
    )


def _type(name: str, kind: str) -> str:
    return "String" if name in ("sentence", "symbol", "host") else _TYPES[kind]


if __name__ == "__main__":
    print(ddl(), end="")

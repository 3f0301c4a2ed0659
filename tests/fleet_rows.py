# SPDX-License-Identifier: GPL-2.0-only
"""Rows of one recording as those of others, and the sums that no file may change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tlstax.analysis.fleet import columns, location
from tlstax.analysis.fleet.columns import HOUR_NS, TABLES, Row
from tlstax.analysis.fleet.engines.opening import open_engine
from tlstax.analysis.fleet.location import Location
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import packing
from tlstax.analysis.fleet.store.parquet_files import TABLE_KEY, VERSION_KEY
from tlstax.collectors.capture.schema import table_name

ADDED = [(table, table._field_defaults) for table in TABLES if table._field_defaults]
"""Tables with columns since version 1."""


def totals(data: Location, tier: str = "1h") -> dict[str, Any]:
    """Sums that change if anything is lost or counted twice."""
    files, folder = location.select(data, tier, TABLES, (None, None))
    with open_engine("duckdb", files, folder) as engine:
        found = {
            table: engine.query(f"SELECT CAST(SUM({name}) AS DOUBLE) AS n FROM {table}")
            for table, name in (
                ("interval", "served_ns"),
                ("ledger", "on_cpu_ns"),
                ("handshake", "wall_ns"),
                ("phase_bucket", "ended_count"),
                ("stacks", "time_ns"),
            )
        }
        ids = engine.query("SELECT COUNT(DISTINCT frame_id) AS n FROM frame")
    sums = {table: rows.to_pylist()[0]["n"] for table, rows in found.items()}
    return {**sums, "frames": ids.to_pylist()[0]["n"], "left_out": files.left_out}


def renamed(rolled: RolledUp, host: str, source_id: int) -> RolledUp:
    """The same rows as those of another host."""
    rows = {
        tier: {
            table: [
                row._replace(host=host, source_id=source_id)  # type: ignore[call-arg]
                if "host" in row._fields
                else row
                for row in found
            ]
            for table, found in by_table.items()
        }
        for tier, by_table in rolled.rows.items()
    }
    of = rolled.recording
    return RolledUp(type(of)(host, of.cluster, source_id, of.wall_offset_ns), rows)


def later(rolled: RolledUp, hours: int) -> RolledUp:
    """The same recording, so many hours later."""
    rows = {
        tier: {
            table: [_later(row, hours * HOUR_NS) for row in found] for table, found in of.items()
        }
        for tier, of in rolled.rows.items()
    }
    return RolledUp(rolled.recording, rows)


def _later(row: Any, by_ns: int) -> Any:
    names = [name for name in row._fields if name.endswith("_wall_ns")]
    return row._replace(**{name: getattr(row, name) + by_ns for name in names})


def without(rolled: RolledUp, *tables: type[Row]) -> RolledUp:
    """The same recording with no row of some tables."""
    rows = {
        tier: {table: found for table, found in of.items() if table not in tables}
        for tier, of in rolled.rows.items()
    }
    return RolledUp(rolled.recording, rows)


def of_cluster(rolled: RolledUp, cluster: str) -> RolledUp:
    """The same recording, added with the name of a cluster."""
    hosts = [row._replace(cluster=cluster) for row in rolled.rows["1h"][columns.Host]]  # type: ignore[call-arg]
    hourly = {**rolled.rows["1h"], columns.Host: hosts}
    return RolledUp(rolled.recording, {**rolled.rows, "1h": hourly})


def shorter(rolled: RolledUp) -> RolledUp:
    """The same recording with half of the recorded time."""
    tables = {
        tier: {
            table: [
                row._replace(recorded_ns=row.recorded_ns // 2)
                if isinstance(row, columns.Interval)
                else row
                for row in rows
            ]
            for table, rows in by_table.items()
        }
        for tier, by_table in rolled.rows.items()
    }
    return RolledUp(rolled.recording, tables)


def as_version_1(data: Path, without: Sequence[str] = ()) -> int:
    """Write the files of a data set as an earlier tlstax did; how many lack columns since."""
    count = 0
    for table, added in ADDED:
        for path in data.glob(f"tier=*/table={table_name(table)}/**/*.parquet"):
            rows = pq.ParquetFile(path).read()
            rows = rows.drop_columns([n for n in rows.column_names if n in (*added, *without)])
            options = packing.options(table)
            options["column_encoding"] = {
                name: kind
                for name, kind in options["column_encoding"].items()
                if name in rows.column_names
            }
            with pq.ParquetWriter(path, rows.schema, **options) as writer:
                writer.write_table(rows)
                writer.add_key_value_metadata(
                    {VERSION_KEY: b"1", TABLE_KEY: table_name(table).encode()}
                )
            count += 1
    return count

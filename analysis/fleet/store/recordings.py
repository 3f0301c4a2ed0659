# SPDX-License-Identifier: GPL-2.0-only
"""Which recordings a file holds, how much of each, and the file without some of its rows.

A file of a recording that goes on is copied and merged, and copied again: what it holds more than
before must not be taken for what was merged already.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

from tlstax.analysis.fleet.columns import HOUR_NS, Interval, Row, columns
from tlstax.analysis.fleet.store import packing, parquet_files

_SUMMED: Final = ("_ns", "_count")
"""Ends of the names of columns that grow while a recording goes on."""
_TIME: Final = "_wall_ns"

Span = tuple[int, int]
"""From and to, in ns of the wall clock."""


class Extent(NamedTuple):
    """How much of a recording a file holds; the longer of two copies is greater."""

    recorded_ns: int
    """Of intervals, else 0."""
    sums: int
    """Of all times and counts: findings and estimates join when the recorded time is over."""
    rows_count: int


_NONE: Final = Extent(0, 0, 0)


def extents(path: Path, table: type[Row], span: Span | None = None) -> dict[int, Extent]:
    """How much a file holds of each recording, in a span. Raises UnreadableError.

    Not of tables without a source.
    """
    wanted = [
        one.name
        for one in columns(table)
        if one.kind == "int" and one.name.endswith(_SUMMED) and not one.name.endswith(_TIME)
    ]
    found: dict[int, Extent] = {}
    for rows in parquet_files.groups(path, ["source_id", "start_wall_ns", *wanted]):
        names = [name for name in wanted if name in rows.column_names]  # not in earlier versions
        inside = rows if span is None else rows.filter(_within(rows, span))
        sums = [(name, "sum") for name in names]
        by_source = inside.group_by("source_id", use_threads=False)
        for row in by_source.aggregate([("start_wall_ns", "count"), *sums]).to_pylist():
            before = found.get(row["source_id"], _NONE)
            found[row["source_id"]] = Extent(
                before.recorded_ns + (row["recorded_ns_sum"] if table is Interval else 0),
                before.sums + sum(row[f"{name}_sum"] for name in names),
                before.rows_count + row["start_wall_ns_count"],
            )
    return found


def sources_by_hour(path: Path) -> dict[int, set[int]]:
    """The recordings that a file of a day holds, by the start of their hour in ns."""
    compute = parquet_files.arrow("pyarrow.compute")
    found: dict[int, set[int]] = defaultdict(set)
    for rows in parquet_files.groups(path, ["source_id", "start_wall_ns"]):
        hours = compute.divide(rows["start_wall_ns"], HOUR_NS)
        with_hours = rows.append_column("hour", hours).group_by(
            ["hour", "source_id"], use_threads=False
        )
        for row in with_hours.aggregate([]).to_pylist():
            found[row["hour"] * HOUR_NS].add(row["source_id"])
    return found


def without(rows: Any, sources: Collection[int], span: Span | None = None) -> Any:
    """Rows that are not of these recordings, or not in the span."""
    compute = parquet_files.arrow("pyarrow.compute")
    known = parquet_files.arrow().array(list(sources), rows["source_id"].type)
    theirs = compute.is_in(rows["source_id"], value_set=known)
    if span is not None:
        theirs = compute.and_(theirs, _within(rows, span))
    return rows.filter(compute.invert(theirs))


def keep(
    path: Path,
    table: type[Row],
    kept: Callable[[Any], Any],
    level: int = packing.LIVE_LEVEL,
) -> None:
    """Write a file anew with what is kept of its rows, or remove it where that is nothing.

    Raises UnreadableError, TlstaxError (IO).
    """
    some = (rows for whole in parquet_files.groups(path) if (rows := kept(whole)).num_rows)
    first = next(some, None)
    if first is None:
        path.unlink()
    else:
        parquet_files.write(path, table, itertools.chain([first], some), level)
    parquet_files.sync(path.parent)


def _within(rows: Any, span: Span) -> Any:
    compute = parquet_files.arrow("pyarrow.compute")
    starts = rows["start_wall_ns"]
    is_after = compute.greater_equal(starts, span[0])
    return compute.and_(is_after, compute.less(starts, span[1]))

# SPDX-License-Identifier: GPL-2.0-only
"""Put a recording into the data set. Adding it again, or a longer copy of it, counts nothing twice.

Each recording has files of its own, so that writers never touch the same one. The tables that
questions start from are renamed last: a recording that was added in part is not counted. What is
in a compacted file already is left there if it is equal, else that file is written anew without it.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOURLY, SHARED, TABLES, TIERS, Row
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import layout, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError

ADDED: Final = "added"
KNOWN: Final = "already in the data set"
LONGER: Final = "already in the data set, with more windows"
REPLACED: Final = "replaced by this longer recording"

Files = dict[Place, Any]
"""Rows as Arrow tables."""


def add(rolled: RolledUp, data: Path) -> str:
    """Add a recording; what became of it. Raises TlstaxError (IO, HOST)."""
    files = _by_place(rolled)
    source_id = rolled.recording.source_id
    with layout.lock(data, exclusive=False):
        known_ns = _recorded_ns(data, files, source_id)
        if known_ns > _sum_of(files):
            return LONGER
        if known_ns and all(_has(data, place, rows, source_id) for place, rows in files.items()):
            return KNOWN
        if not _compacted_with(data, files, source_id):
            _write(data, files, source_id)
            return REPLACED if known_ns else ADDED
    with layout.lock(data, exclusive=True):
        for place in _compacted_with(data, files, source_id):
            _take_out(data, place, source_id)
        _write(data, files, source_id)
    return REPLACED


def _by_place(rolled: RolledUp) -> Files:
    """One Arrow table for each folder."""
    by_place: dict[Place, list[Row]] = defaultdict(list)
    for tier, tables in rolled.rows.items():
        for table, rows in tables.items():
            for row in rows:
                start_ns = getattr(row, "start_wall_ns")  # noqa: B009 - all tables have it
                by_place[Place(tier, table, layout.hour_of(start_ns))].append(row)
    return {
        place: parquet_files.table_of(place.table, rows)
        for place, rows in sorted(by_place.items(), key=lambda item: _rank(item[0]))
    }


def _rank(place: Place) -> tuple[bool, int]:
    """Intervals last: without them nothing of the recording is counted."""
    return place.table is columns.Interval, place.hour_wall_ns


def _sum_of(files: Files) -> int:
    """Recorded time."""
    return sum(
        sum(rows["recorded_ns"].to_pylist())
        for place, rows in files.items()
        if (place.tier, place.table) == ("1h", columns.Interval)
    )


def _recorded_ns(data: Path, files: Files, source_id: int) -> int:
    """Recorded time of the same recording in the data set."""
    known = 0
    for place in files:
        if (place.tier, place.table) == ("1h", columns.Interval):
            rows = _rows_of(data, place, source_id)
            known += sum(rows["recorded_ns"].to_pylist()) if rows is not None else 0
    return known


def _rows_of(data: Path, place: Place, source_id: int) -> Any:
    """The rows of a recording in a folder, or None."""
    folder = place.folder(data)
    for name in (layout.part_name(source_id), COMPACTED):
        try:
            rows = parquet_files.read(folder / name)
        except (FileNotFoundError, UnreadableError):
            continue
        if name == COMPACTED and place.table not in SHARED:
            rows = _only(rows, source_id)
        if rows.num_rows:
            return rows
    return None


def _only(rows: Any, source_id: int, *, others: bool = False) -> Any:
    """The rows of a recording, or those of all others."""
    compute = parquet_files.arrow("pyarrow.compute")
    operator = compute.not_equal if others else compute.equal
    return rows.filter(operator(rows["source_id"], source_id))


def _has(data: Path, place: Place, rows: Any, source_id: int) -> bool:
    """Whether a folder holds these rows of a recording."""
    found = _rows_of(data, place, source_id)
    if found is None:
        return False
    if place.table not in SHARED:
        return bool(parquet_files.in_order(place.table, found).equals(rows))
    return set(rows.column(0).to_pylist()) <= set(found.column(0).to_pylist())


def _compacted_with(data: Path, files: Files, source_id: int) -> list[Place]:
    """The folders whose compacted file has rows of the recording."""
    hours = {place.hour_wall_ns for place in files}
    found = []
    for place in _all_places(hours):
        path = place.folder(data) / COMPACTED
        if place.table not in SHARED and path.exists():
            try:
                is_there = source_id in parquet_files.sources_in(path, place.table)
            except (FileNotFoundError, UnreadableError):
                continue
            if is_there:
                found.append(place)
    return found


def _all_places(hours: set[int]) -> list[Place]:
    return [
        Place(tier, table, hour)
        for hour in sorted(hours)
        for table in TABLES
        for tier in TIERS
        if tier == "1h" or table not in HOURLY
    ]


def _take_out(data: Path, place: Place, source_id: int) -> None:
    path = place.folder(data) / COMPACTED
    rows = _only(parquet_files.read(path), source_id, others=True)
    if rows.num_rows:
        parquet_files.write(path, place.table, [rows])
    else:
        path.unlink(missing_ok=True)


def _write(data: Path, files: Files, source_id: int) -> None:
    """Write all files of a recording, and remove those of an earlier copy that it has no more."""
    name = layout.part_name(source_id)
    for place, rows in files.items():
        parquet_files.write(place.folder(data) / name, place.table, [rows])
    for place in _all_places({place.hour_wall_ns for place in files}):
        if place not in files:
            (place.folder(data) / name).unlink(missing_ok=True)
    for place in files:
        parquet_files.sync(place.folder(data))

# SPDX-License-Identifier: GPL-2.0-only
"""Put a recording into the data set. Adding it again, or a longer copy of it, counts nothing twice.

Each recording has files of its own, so that writers never touch the same one. The tables that
questions start from are renamed last: a recording that was added in part is not counted. What is
in a compacted file already is left there if it is equal, else that file is written anew without it.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import SECOND_NS, SHARED, TABLES, Row, tiers_of
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.rollup.steps import in_steps
from tlstax.analysis.fleet.store import layout, parquet_files, recordings
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError

ADDED: Final = "added"
KNOWN: Final = "already in the data set"
LONGER: Final = "already in the data set, with more windows"
REPLACED: Final = "replaced by this longer recording"
CHANGED: Final = "replaced, as its rows have changed"

_ROLLUP_NS: Final = 120 * SECOND_NS
"""What the rollups of a watch may lack."""

Files = dict[Place, Any]
"""Rows as Arrow tables."""


def add(rolled: RolledUp, data: Path) -> str:
    """Add a recording; what became of it. Raises TlstaxError (IO, HOST)."""
    files, of = by_place(rolled), rolled.recording
    with layout.lock(data, exclusive=False), layout.lock_recording(data, of.source_id):
        outcome = _add(files, data, of, may_rewrite=False)
    if not outcome:
        # Another writer may have been here meanwhile: all is decided anew.
        with layout.lock(data, exclusive=True):
            outcome = _add(files, data, of, may_rewrite=True)
    return outcome


def _add(files: Files, data: Path, of: Recording, *, may_rewrite: bool) -> str:
    """The same under a lock; '' if a compacted file has to be written anew and must not be."""
    known_ns, new_ns = _recorded_ns(data, files, of), recorded_ns_of(files)
    if known_ns > new_ns:
        return LONGER
    if of.is_watched and new_ns - known_ns < min(known_ns, _ROLLUP_NS):
        return KNOWN  # its rollups, which lack what is not written yet
    if known_ns and all(_has(data, place, rows, of) for place, rows in files.items()):
        return KNOWN
    compacted = _compacted_with(data, files, of.source_id)
    if compacted and not may_rewrite:
        return ""
    for place in compacted:
        _take_out(data, place, of.source_id)
    _write(data, files, of.source_id)
    return ADDED if not known_ns else CHANGED if known_ns == new_ns else REPLACED


def by_place(rolled: RolledUp) -> Files:
    """One Arrow table for each folder."""
    found: dict[Place, list[Row]] = defaultdict(list)
    for tier, tables in rolled.rows.items():
        for table, rows in tables.items():
            for row in rows:
                start_ns = getattr(row, "start_wall_ns")  # noqa: B009 - all tables have it
                found[Place(tier, table, layout.hour_of(start_ns))].append(row)
    return {
        place: in_steps(place.tier, place.table, parquet_files.table_of(place.table, rows))
        for place, rows in sorted(found.items(), key=lambda item: _rank(item[0]))
    }


def _rank(place: Place) -> tuple[bool, int]:
    """Intervals last: without them nothing of the recording is counted."""
    return place.table is columns.Interval, place.hour_wall_ns


def recorded_ns_of(files: Files) -> int:
    """Recorded time in all hours."""
    return sum(
        sum(rows["recorded_ns"].to_pylist())
        for place, rows in files.items()
        if (place.tier, place.table) == ("1h", columns.Interval)
    )


def _recorded_ns(data: Path, files: Files, of: Recording) -> int:
    """Recorded time of the same recording in the data set."""
    known = 0
    for place in files:
        if (place.tier, place.table) == ("1h", columns.Interval):
            rows = _rows_of(data, place, of)
            known += sum(rows["recorded_ns"].to_pylist()) if rows is not None else 0
    return known


def _rows_of(data: Path, place: Place, of: Recording) -> Any:
    """The rows of a recording in a folder, or None."""
    compute = parquet_files.arrow("pyarrow.compute")
    for path in _candidates(data, place, of):
        try:
            rows = parquet_files.rows_of(path, place.table, of.host, of.source_id)
        except (FileNotFoundError, UnreadableError):
            continue
        starts = rows["start_wall_ns"]
        is_after = compute.greater_equal(starts, place.hour_wall_ns)
        rows = rows.filter(compute.and_(is_after, compute.less(starts, place.end_wall_ns)))
        if rows.num_rows:
            return rows
    return None


def _candidates(data: Path, place: Place, of: Recording) -> tuple[Path, ...]:
    """The files that may hold rows of a recording in an hour."""
    folder = place.folder(data)
    own = folder / layout.part_name(of.source_id)
    return own, folder / COMPACTED, place.day.folder(data) / COMPACTED


def _has(data: Path, place: Place, rows: Any, of: Recording) -> bool:
    """Whether a folder holds these rows of a recording."""
    if place.table not in SHARED:
        found = _rows_of(data, place, of)
        return found is not None and bool(found.equals(rows))
    missing = set(rows.column(0).to_pylist())
    for path in _candidates(data, place, of):
        try:
            for ids in parquet_files.groups(path, [rows.column_names[0]]):
                missing.difference_update(ids.column(0).to_pylist())
        except (FileNotFoundError, UnreadableError):
            continue
    return not missing


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
    found = [
        Place(tier, table, hour)
        for hour in sorted(hours)
        for table in TABLES
        for tier in tiers_of(table)
    ]
    return [*found, *dict.fromkeys(place.day for place in found)]


def _take_out(data: Path, place: Place, source_id: int) -> None:
    """Write a compacted file anew without a recording."""
    path = place.folder(data) / COMPACTED
    try:
        recordings.keep(path, place.table, lambda rows: recordings.without(rows, [source_id]))
    except UnreadableError as error:
        raise TlstaxError(
            "cannot replace a recording in the data set",
            f"{path} holds it, and {error}",
            "Remove that file, and add the captures of its hour again",
            ExitCode.CAPTURE,
        ) from error


def _write(data: Path, files: Files, source_id: int) -> None:
    """Write all files of a recording, in place of those of an earlier copy."""
    name = layout.part_name(source_id)
    for place in _all_places({place.hour_wall_ns for place in files}):
        if place not in files or place.table is columns.Interval:
            (place.folder(data) / name).unlink(missing_ok=True)
    for place, rows in files.items():
        parquet_files.write(place.folder(data) / name, place.table, [rows])
    for place in files:
        parquet_files.sync(place.folder(data))

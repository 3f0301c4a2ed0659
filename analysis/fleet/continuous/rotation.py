# SPDX-License-Identifier: GPL-2.0-only
"""Removes what a watch wrote long ago. Rows of another host stay, also in a file of several.

Stacks and frames belong to no host: they go with the last hour of their day that any host has.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tlstax import TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS, SHARED, TABLES, Row, tiers_of
from tlstax.analysis.fleet.store import layout, parquet_files, recordings
from tlstax.analysis.fleet.store.compaction import remove_stale
from tlstax.analysis.fleet.store.layout import COMPACTED
from tlstax.analysis.fleet.store.parquet_files import UnreadableError

_ORDER: tuple[type[Row], ...] = (
    columns.Interval,  # first: without it the rest is not counted
    *(table for table in TABLES if table is not columns.Interval and table not in SHARED),
)


def rotate(data: Path, host: str, end_wall_ns: int) -> int:
    """Remove the hours of one host that begin before this time; the number of files.

    Those that were written anew for other hosts count, too. Raises TlstaxError (IO) where the
    folder or a file cannot be written: the others were removed.
    """
    removed = 0
    failed: list[TlstaxError] = []
    with layout.lock(data, exclusive=True, wait_s=layout.TURN_S):
        for table in _ORDER:
            for tier in tiers_of(table):
                for place in layout.places(data, tier, table, None, end_wall_ns):
                    if place.end_wall_ns <= end_wall_ns:
                        folder = place.folder(data)
                        removed += _take_out(folder / COMPACTED, table, host, failed)
                        removed += _remove(folder, table, host)
        removed += _remove_unused(data, end_wall_ns)
    if failed:
        raise failed[0]
    return removed


def newest_before(data: Path, host: str, end_wall_ns: int) -> int | None:
    """The end of the newest hour of a host that ends before this time; None: it has none."""
    table = columns.Interval
    for place in reversed([*layout.places(data, "1h", table, None, end_wall_ns)]):
        if place.end_wall_ns <= end_wall_ns:
            files = place.folder(data).glob("*.parquet")
            if any(_groups_with(path, table, host) for path in files):
                return place.end_wall_ns
    return None


def _remove_unused(data: Path, end_wall_ns: int) -> int:
    """Remove the stacks and frames of days of which no hour is counted any more."""
    counted = {
        place.hour_wall_ns // DAY_NS for place in layout.places(data, "1h", columns.Interval)
    }
    removed = 0
    for table in SHARED:
        for place in layout.places(data, "1h", table, None, end_wall_ns):
            day = place.hour_wall_ns // DAY_NS
            if day not in counted and (day + 1) * DAY_NS <= end_wall_ns:
                removed += _remove_files(place.folder(data), lambda path: True)
    return removed


def _remove(folder: Path, table: type[Row], host: str) -> int:
    return _remove_files(folder, lambda path: _is_only_of(path, table, host))


def _remove_files(folder: Path, is_old: Callable[[Path], bool]) -> int:
    remove_stale(folder)
    removed = 0
    for path in folder.glob("*.parquet"):
        if is_old(path):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):
            empty.rmdir()
    return removed


def _is_only_of(path: Path, table: type[Row], host: str) -> bool:
    bounds = _bounds(path, table)
    return bounds is not None and all(bound == (host, host) for bound in bounds)


def _take_out(path: Path, table: type[Row], host: str, failed: list[TlstaxError]) -> int:
    """Write a file of several hosts anew without this one; whether it has changed."""
    if _is_only_of(path, table, host) or not has_rows(path, table, host):
        return 0

    def others(rows: Any) -> Any:
        return rows.filter(parquet_files.arrow("pyarrow.compute").not_equal(rows["host"], host))

    try:
        recordings.keep(path, table, others)
    except UnreadableError:
        return 0
    except TlstaxError as error:  # a full disk: what needs no room is removed even so
        failed.append(error)
        return 0
    return 1


def has_rows(path: Path, table: type[Row], host: str) -> bool:
    """Whether a file has rows of a host."""
    numbers = _groups_with(path, table, host)
    with contextlib.suppress(UnreadableError, FileNotFoundError):
        for rows in parquet_files.groups(path, ["host"], numbers):
            if host in rows["host"].unique().to_pylist():
                return True
    return False


def _groups_with(path: Path, table: type[Row], host: str) -> list[int]:
    """The row groups that may have rows of a host: files are sorted by host."""
    return [
        number
        for number, (first, last) in enumerate(_bounds(path, table) or [])
        if first is None or first <= host <= last
    ]


def _bounds(path: Path, table: type[Row]) -> list[tuple[Any, Any]] | None:
    try:
        return parquet_files.bounds(path, table)
    except (UnreadableError, FileNotFoundError, TlstaxError):
        return None  # one of a newer version, too: the others go

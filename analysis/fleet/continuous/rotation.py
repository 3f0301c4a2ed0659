# SPDX-License-Identifier: GPL-2.0-only
"""Removes what a watch wrote long ago. Files that hold rows of another host stay.

Stacks and frames belong to no host: they go with the last hour of their day that any host has.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from tlstax import TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS, SHARED, TABLES, Row, tiers_of
from tlstax.analysis.fleet.store import layout, parquet_files
from tlstax.analysis.fleet.store.compaction import remove_stale
from tlstax.analysis.fleet.store.parquet_files import UnreadableError

_ORDER: tuple[type[Row], ...] = (
    columns.Interval,  # first: without it the rest is not counted
    *(table for table in TABLES if table is not columns.Interval and table not in SHARED),
)


def rotate(data: Path, host: str, end_wall_ns: int) -> int:
    """Remove the hours of one host that begin before this time; the number of files.

    Raises TlstaxError (IO) where the folder cannot be written.
    """
    removed = 0
    with layout.lock(data, exclusive=True):
        for table in _ORDER:
            for tier in tiers_of(table):
                for place in layout.places(data, tier, table, None, end_wall_ns):
                    if place.end_wall_ns <= end_wall_ns:
                        removed += _remove(place.folder(data), table, host)
        removed += _remove_unused(data, end_wall_ns)
    return removed


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
    try:
        return all(bound == (host, host) for bound in parquet_files.bounds(path, table))
    except (UnreadableError, FileNotFoundError, TlstaxError):
        return False  # one of a newer version, too: the others go

# SPDX-License-Identifier: GPL-2.0-only
"""Removes what a watch wrote long ago. Files that hold rows of another host stay."""

import contextlib
from pathlib import Path

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import SHARED, TABLES, Row, tiers_of
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
                    if place.hour_wall_ns + columns.HOUR_NS <= end_wall_ns:
                        removed += _remove(place.folder(data), table, host)
    return removed


def _remove(folder: Path, table: type[Row], host: str) -> int:
    remove_stale(folder)
    removed = 0
    for path in folder.glob("*.parquet"):
        if _is_only_of(path, table, host):
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
    except (UnreadableError, FileNotFoundError):
        return False

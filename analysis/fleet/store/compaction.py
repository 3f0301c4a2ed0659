# SPDX-License-Identifier: GPL-2.0-only
"""Merge the files of each hour into one, sorted by host, and small hours of a day that is over.

The new file is renamed over the earlier one, then the merged files are removed. A reader that finds
both takes the rows of each recording once (`selection`). The file of a recording that was merged
already may be back with more rows, as it went on and was copied again: these take the place of
those that were merged. Row groups are merged in the order of their hosts, so that an hour of many
hosts does not have to fit into memory.
"""

import contextlib
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.analysis.fleet.columns import HOUR_NS, SHARED, TABLES, Row, columns, tiers_of
from tlstax.analysis.fleet.store import aside, layout, packing, parquet_files, recordings
from tlstax.analysis.fleet.store.layout import COMPACTED, PARTIAL, Place
from tlstax.analysis.fleet.store.packing import ROWS_OF_A_GROUP
from tlstax.analysis.fleet.store.parquet_files import UnreadableError
from tlstax.analysis.fleet.store.recordings import Extent
from tlstax.analysis.fleet.store.selection import require

DAY_IS_OVER_NS: Final = 2 * HOUR_NS
"""So long after midnight the hours of a day are merged: a watch has ended them by then."""
DAY_ROWS_MOST: Final = 4 * ROWS_OF_A_GROUP
"""Days with more rows stay one file an hour."""
_TURN_S: Final = 0.001
_STALE_S: Final = 3600
"""A file that was not finished for so long belongs to a writer that died."""


class Outcome(NamedTuple):
    """What was done."""

    hours_count: int
    """Folders that were compacted."""
    merged_count: int
    """Files that were merged."""
    left_out: list[str]
    """Why files could not be merged, as sentences."""


class _Piece(NamedTuple):
    """A row group of a file, and the hosts (or ids) from which to which it goes."""

    first: Any
    last: Any
    path: Path
    number: int
    rows_count: int


def compact(data: Path, now_wall_ns: int | None = None) -> Outcome:
    """Compact every hour that has more than one file, and days that are over and small.

    Raises TlstaxError (USAGE, IO, CAPTURE).
    """
    left_out: list[str] = []
    _take_up(data, left_out)
    require(data)
    now_ns = time.time_ns() if now_wall_ns is None else now_wall_ns
    hours = merged = 0
    for table in TABLES:
        for tier in tiers_of(table):
            counts = [_hour(data, place, left_out) for place in layout.places(data, tier, table)]
            for found in _days(data, tier, table, now_ns - DAY_IS_OVER_NS):
                counts.append(_merge_day(data, found, left_out))
            hours += sum(count > 0 for count in counts)
            merged += sum(counts)
    for place in _take_up(data, left_out):  # a watch may have ended meanwhile
        count = _hour(data, place, left_out)
        hours += count > 0
        merged += count
    return Outcome(hours, merged, left_out)


def _take_up(data: Path, left_out: list[str]) -> list[Place]:
    """Put what watches set aside into its places."""
    try:
        return aside.take_up(data)
    except TlstaxError as error:
        left_out.append(f"what was set aside was not merged: {error.why}")
        return []


@contextlib.contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Hold the data set for one folder, then let who waits for it have it."""
    with layout.lock(data, exclusive=True):
        yield
    time.sleep(_TURN_S)


def _hour(data: Path, place: Place, left_out: list[str]) -> int:
    """Merge the files of an hour; how many were merged."""
    folder = place.folder(data)
    try:
        with _alone(data):
            _remove_merged(data, place)
            return _compact(folder, place, left_out)
    except FileNotFoundError:
        return 0  # somebody removed it
    except OSError as error:
        left_out.append(f"{folder} was not merged: {layout.reason(error)}")
        return 0


def _days(data: Path, tier: str, table: type[Row], end_ns: int) -> list[list[Place]]:
    """The hours of each day that is over."""
    made: dict[Place, list[Place]] = {}
    for place in layout.places(data, tier, table):
        if not place.is_day and place.day.end_wall_ns <= end_ns:
            made.setdefault(place.day, []).append(place)
    return list(made.values())


def _merge_day(data: Path, hours: Sequence[Place], left_out: list[str]) -> int:
    """Merge the compacted files of a day's hours if they are small; how many were merged."""
    day = hours[0].day
    target = day.folder(data) / COMPACTED
    try:
        with _alone(data):
            return _merge_hours(data, hours, day, target)
    except UnreadableError as error:
        left_out.append(f"the day of {error.path} was not merged: {error}")
    except OSError as error:
        left_out.append(f"the day of {target} was not merged: {layout.reason(error)}")
    return 0


def _merge_hours(data: Path, hours: Sequence[Place], day: Place, target: Path) -> int:
    """The same under a lock. Raises UnreadableError, OSError, TlstaxError (IO)."""
    found = [place.folder(data) / COMPACTED for place in hours]
    files = [path for path in found if path.exists()]
    whole = [*files, *([target] if target.exists() else [])]
    if not files or len(whole) < 2:
        return 0
    count = sum(parquet_files.check(path, day.table).num_rows for path in whole)
    if count > DAY_ROWS_MOST:
        return 0
    rows = sorted_rows(whole, day)
    parquet_files.write(target, day.table, rows, packing.FINAL_LEVEL)
    parquet_files.sync(target.parent)
    for path in files:
        path.unlink()
        with contextlib.suppress(OSError):
            path.parent.rmdir()
    return len(files)


def _remove_merged(data: Path, place: Place) -> None:
    """Remove files of an hour whose rows its day has: whoever merged them died before that.

    Or they were copied again. Where they have more now, they stay, and the day loses its rows of
    these recordings in that hour.
    """
    day = place.day.folder(data) / COMPACTED
    if place.is_day or place.table in SHARED or not day.exists():
        return
    # The compacted one comes first: what it has is not in the day twice.
    files = [path for path in layout.files_in(place.folder(data)) if _is_ours(path)]
    span = (place.hour_wall_ns, place.end_wall_ns)
    outgrown: set[int] = set()
    with contextlib.suppress(UnreadableError):
        if not files:
            return
        parquet_files.check(day, place.table)
        held = recordings.extents(day, place.table, span)
        for path in files:
            with contextlib.suppress(UnreadableError):
                parquet_files.check(path, place.table)
                parquet_files.bounds(path, place.table)
                found = recordings.extents(path, place.table)
                if not found.keys() <= held.keys():
                    continue
                if all(held[source] >= extent for source, extent in found.items()):
                    path.unlink()
                else:
                    deque(parquet_files.groups(path), maxlen=0)  # all of it can be read
                    outgrown |= found.keys()
        if outgrown:
            kept = partial(recordings.without, sources=outgrown, span=span)
            recordings.keep(day, place.table, kept, packing.FINAL_LEVEL)


def _is_ours(path: Path) -> bool:
    return path.name == COMPACTED or layout.source_of(path.name) is not None


def _compact(folder: Path, place: Place, left_out: list[str]) -> int:
    """Merge one folder; how many files were merged."""
    remove_stale(folder)
    parts = []
    for path in layout.files_in(folder):
        if layout.source_of(path.name) is None:
            continue
        try:
            parquet_files.check(path, place.table)
            parts.append(path)
        except FileNotFoundError:
            continue  # somebody removed it
        except UnreadableError as error:
            left_out.append(f"{path} was not merged: {error}")
    if not parts:
        return 0
    compacted = folder / COMPACTED
    files = list(parts)
    if compacted.exists():
        try:
            parquet_files.check(compacted, place.table)
            files = [*_not_merged(parts, compacted, place), compacted]
        except UnreadableError as error:
            left_out.append(f"{compacted} was not merged: {error}")
            return 0
    damaged = _merge(compacted, files, place, left_out)
    if compacted in damaged:
        return 0
    merged = [path for path in parts if path not in damaged]
    for path in merged:
        path.unlink(missing_ok=True)
    return len(merged)


def _not_merged(parts: list[Path], compacted: Path, place: Place) -> list[Path]:
    """The files that have rows which the compacted one lacks. Raises UnreadableError for that."""
    known = parquet_files.sources_in(compacted, place.table)
    again = {path for path in parts if layout.source_of(path.name) in known}
    held = recordings.extents(compacted, place.table) if again else {}
    return [path for path in parts if path not in again or _has_more(path, place, held)]


def _has_more(path: Path, place: Place, held: Mapping[int, Extent]) -> bool:
    """Whether a file has more of its recording than a compacted one, or is damaged."""
    try:
        found = recordings.extents(path, place.table)
    except UnreadableError:
        return True  # whoever merges it says so
    return any(source not in held or extent > held[source] for source, extent in found.items())


def _merge(compacted: Path, files: list[Path], place: Place, left_out: list[str]) -> set[Path]:
    """Write the compacted file; those that turn out to be damaged inside stay as they are."""
    damaged: set[Path] = set()
    while compacted not in damaged:
        whole = [path for path in files if path not in damaged]
        if whole in ([], [compacted]):
            break
        try:
            count = sum(parquet_files.check(path, place.table).num_rows for path in whole)
            level = packing.merged_level(place.table, count)
            rows = sorted_rows(whole, place, _sources_of(whole))
            parquet_files.write(compacted, place.table, rows, level)
            parquet_files.sync(compacted.parent)
            break
        except UnreadableError as error:
            left_out.append(f"{error.path} was not merged: {error}")
            damaged.add(error.path)
    return damaged


def _sources_of(parts: Sequence[Path]) -> list[int]:
    found = (layout.source_of(path.name) for path in parts)
    return [source for source in found if source is not None]


def remove_stale(folder: Path) -> None:
    """Remove what writers that died have left."""
    for path in folder.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()


def sorted_rows(
    files: Sequence[Path], place: Place, replaced: Collection[int] = ()
) -> Iterator[Any]:
    """Sorted rows, as many at a time as share no host with the next.

    `replaced`: recordings whose rows are not taken from the compacted file.
    """
    pyarrow = parquet_files.arrow()
    waiting: list[_Piece] = []
    size = 0
    for piece in _pieces(files, place):
        is_apart = waiting and piece.first > max(one.last for one in waiting)
        if is_apart and size >= ROWS_OF_A_GROUP:
            yield _merged(pyarrow, waiting, place, replaced)
            waiting, size = [], 0
        waiting.append(piece)
        size += piece.rows_count
    if waiting:
        yield _merged(pyarrow, waiting, place, replaced)


def _pieces(files: Sequence[Path], place: Place) -> list[_Piece]:
    """All row groups in the order of their first host."""
    found = []
    for path in files:
        footer = parquet_files.check(path, place.table)
        for number, (first, last) in enumerate(parquet_files.bounds(path, place.table)):
            rows_count = footer.row_group(number).num_rows
            if rows_count and first is None:
                raise UnreadableError(path, "it does not say which hosts are where")
            if rows_count:
                found.append(_Piece(first, last, path, number, rows_count))
    return sorted(found)


def _merged(pyarrow: Any, pieces: Sequence[_Piece], place: Place, replaced: Collection[int]) -> Any:
    found = []
    for piece in pieces:
        for rows in parquet_files.groups(piece.path, numbers=[piece.number]):
            is_merged = piece.path.name == COMPACTED and place.table not in SHARED
            found.append(recordings.without(rows, replaced) if is_merged and replaced else rows)
    rows = pyarrow.concat_tables(found)
    if place.table in SHARED:
        rows = _distinct(rows, columns(place.table)[0].name)
    return parquet_files.in_order(place.table, rows)


def _distinct(rows: Any, key: str) -> Any:
    """The first row of each key."""
    seen: set[int] = set()
    kept = []
    for at, value in enumerate(rows[key].to_pylist()):
        if value not in seen:
            seen.add(value)
            kept.append(at)
    return rows.take(kept)

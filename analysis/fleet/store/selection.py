# SPDX-License-Identifier: GPL-2.0-only
"""The files that a question reads: whole files of a known version, each recording once."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import DAY_NS, HOURLY, SHARED, TIERS, Row
from tlstax.analysis.fleet.store import layout, parquet_files, recordings
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError
from tlstax.collectors.capture.schema import table_name

_ATTEMPTS: Final = 5


@dataclass
class Selection:
    """Files by table, and those that were left out."""

    tier: str
    files: dict[type[Row], list[Path]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Why files could not be read, as sentences."""
    lacking: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    """Columns that files of an earlier version do not have."""

    seen: dict[Path, "_Identity"] = field(default_factory=dict)
    """What files of a folder were when they were chosen."""

    def is_replaced(self, *, or_grown: bool = False) -> bool:
        """Whether compaction has removed or replaced any of the files since they were chosen.

        `or_grown`: or whether a recording went on. A file with more of it counts nothing twice.
        """
        chosen = {path for paths in self.files.values() for path in paths}
        return any(
            (now := _identity(path)) != self.seen[path]
            and (or_grown or now is None or path.name == COMPACTED)
            for path in chosen & self.seen.keys()
        )


_Identity = tuple[int, int, int] | None


def _identity(path: Path) -> _Identity:
    """Of a file that is not the same after another one was renamed over it; None: it is gone."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_ino, known.st_mtime_ns, known.st_size


def select(
    data: Path,
    tier: str,
    tables: Iterable[type[Row]],
    span: tuple[int | None, int | None] = (None, None),
) -> Selection:
    """The files of these tables that may hold intervals in the span.

    Tables that only the tier 1h has are taken from there; of those that several recordings share
    also the files of the same day before, as a watch writes a row of them once a day.
    Raises TlstaxError: USAGE where there is no data set, CAPTURE for a file of a newer version.
    """
    require(data)
    made = Selection(tier)
    for table in tables:
        first_ns, end_ns = span
        if table in SHARED and first_ns is not None:
            first_ns -= first_ns % DAY_NS
        files = _files_of(data, table, (first_ns, end_ns), made)
        made.files[table] = (
            files if table in SHARED else _each_day_once(data, table, files, made.left_out)
        )
    return made


def _files_of(
    data: Path, table: type[Row], span: tuple[int | None, int | None], made: Selection
) -> list[Path]:
    """The files of a table, listed again where hours were merged into their day meanwhile.

    That writes the new file of the day before it removes those of the hours.
    """
    told = len(made.left_out)
    for _ in range(_ATTEMPTS):
        del made.left_out[told:]
        places = list(layout.places(data, tier_of(made.tier, table), table, *span))
        found = [_files_in(data, place, made) for place in places]
        now = layout.places(data, tier_of(made.tier, table), table, *span)
        if all(found) or {place for place in now if place.is_day} <= set(places):
            return [path for files in found for path in files]
    made.left_out.append(f"hours of {table_name(table)} were merged while they were looked for")
    return [path for files in found for path in files]


def _each_day_once(
    data: Path, table: type[Row], files: list[Path], left_out: list[str]
) -> list[Path]:
    """Without files of hours that were merged into their day while we looked."""
    kept = list(files)
    for day in [path for path in files if path.parent.name == f"hour={layout.WHOLE_DAY}"]:
        hours = [path for path in kept if path.parent.parent == day.parent.parent and path != day]
        try:
            known = recordings.sources_by_hour(day) if hours else {}
            of_hour = [(one, known.get(layout.start_of_path(one), set())) for one in hours]
            merged = [path for path, of in of_hour if parquet_files.sources_in(path, table) <= of]
        except (UnreadableError, FileNotFoundError) as error:
            left_out.append(f"{day} was not compared with its hours: {error}")
            continue
        kept = [path for path in kept if path not in merged]
    return kept


def tier_of(tier: str, table: type[Row]) -> str:
    """The tier in which a table has its files."""
    return "1h" if table in HOURLY else tier


def require(data: Path) -> None:
    """Raise TlstaxError: USAGE where there is no data set, IO where it cannot be read."""
    try:
        is_there = any((data / f"tier={tier}").is_dir() for tier in TIERS)
    except OSError as error:
        raise layout.unreadable(data, error) from error
    if not is_there:
        raise TlstaxError(
            f"there is no data set in {data}",
            "it has no folder tier=1h" if data.is_dir() else "there is no such folder",
            "Make one with `tlstax fleet add CAPTURE --data DIR`",
            ExitCode.USAGE,
        )


def _files_in(data: Path, place: Place, made: Selection) -> list[Path]:
    """The files of an hour. A recording that was compacted while we look counts once."""
    folder = place.folder(data)
    for _ in range(_ATTEMPTS):
        skipped: list[str] = []
        try:
            found = list(_whole(folder, place, made, skipped))
            if len(found) > 1 and place.table not in SHARED:
                found = _once(folder / COMPACTED, found, place, skipped)
        except FileNotFoundError:
            if not os.path.isdir(folder):  # Path.is_dir() may raise
                return []  # merged into its day, or removed
            continue  # compacted meanwhile
        except OSError as error:
            made.left_out.append(f"{folder} was not read: {layout.reason(error)}")
            return []
        made.left_out += skipped
        return found
    made.left_out.append(f"{folder} was not read: its files were replaced while they were read")
    return []


def _whole(folder: Path, place: Place, made: Selection, skipped: list[str]) -> Iterator[Path]:
    for path in layout.files_in(folder):
        if path.name != COMPACTED and layout.source_of(path.name) is None:
            skipped.append(f"{path} was not read: tlstax gives files other names")
            continue
        try:
            made.seen[path] = _identity(path)
            footer = parquet_files.check(path, place.table)
            if lacking := parquet_files.lacking(footer, place.table):
                made.lacking[path] = lacking
            yield path
        except UnreadableError as error:
            skipped.append(f"{path} was not read: {error}")


def _once(compacted: Path, found: list[Path], place: Place, skipped: list[str]) -> list[Path]:
    """Without the files whose rows the compacted one holds, or without that one if damaged."""
    if compacted not in found:
        return found
    try:
        known = parquet_files.sources_in(compacted, place.table)
    except UnreadableError as error:
        skipped.append(f"{compacted} was not read: {error}")
        return [path for path in found if path != compacted]
    return [path for path in found if path == compacted or layout.source_of(path.name) not in known]

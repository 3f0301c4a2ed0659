# SPDX-License-Identifier: GPL-2.0-only
"""Rows that a watch could not put into the data set when it ended, until somebody takes them up.

`.aside/TIME-SOURCE/` is laid out as a data set, with whole files of one recording. It appears by a
rename: whoever dies before leaves nothing that counts. Taking up moves each file into its place. It
may be done in part, and again, and after a compaction: a file keeps the source of its recording,
of which the longer copy counts, as for a recording that was copied again.
"""

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tlstax.analysis.fleet.columns import SHARED, TABLES, Interval, Row, tiers_of
from tlstax.analysis.fleet.store import layout, parquet_files, recordings
from tlstax.analysis.fleet.store.layout import PARTIAL, Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError
from tlstax.collectors.capture.printable import output_error

ASIDE: Final = ".aside"
_STALE_S: Final = 3600
"""What was not finished for so long belongs to a writer that died."""
_NAME: Final = re.compile(r"\d+-([0-9a-f]{16})")
_ORDER: Final[tuple[type[Row], ...]] = (
    *(table for table in TABLES if table is not Interval),
    Interval,  # last: without it nothing is counted
)


@contextlib.contextmanager
def put(data: Path, source_id: int) -> Iterator[Path]:
    """A folder for files of a recording, which are set aside when all is written.

    No lock is needed. Raises TlstaxError (IO).
    """
    top = data / ASIDE
    name = f"{time.time_ns()}-{source_id % 2**64:016x}"
    partial = top / f".{name}.{secrets.token_hex(4)}{PARTIAL}"
    try:
        try:
            layout.make_folder(partial)
            yield partial
            partial.rename(top / name)
            parquet_files.sync(top)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise output_error(f"to the data set ({top})", error) from error


def folders(data: Path) -> list[tuple[Path, int]]:
    """What was set aside, with the recording of each, in order. Raises TlstaxError (IO)."""
    try:
        with os.scandir(data / ASIDE) as entries:
            names = sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise layout.unreadable(data / ASIDE, error) from error
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        source = layout.source_of(f"part-{match[1]}.parquet") if match else None
        if source is not None:
            found.append((data / ASIDE / name, source))
    return found


def take_up(data: Path, wait_s: float | None = None) -> list[Place]:
    """Put what was set aside into the data set; where files were put.

    `wait_s`: for others at most. Raises TlstaxError (IO): what is left is taken up another time.
    """
    taken: list[Place] = []
    try:
        found = folders(data)
        if found:
            with layout.lock(data, exclusive=False, wait_s=wait_s):
                for folder, source in found:
                    with layout.lock_recording(data, source, wait_s):
                        taken += _moved(folder, data, layout.part_name(source))
        _remove_stale(data / ASIDE)
    except OSError as error:
        raise output_error(f"what is in {data / ASIDE} to the data set", error) from error
    return taken


def _moved(folder: Path, data: Path, name: str) -> list[Place]:
    places = []
    for table in _ORDER:
        for tier in tiers_of(table):
            for place in [*layout.places(folder, tier, table)]:
                path, target = (place.folder(top) / name for top in (folder, data))
                if not path.exists():
                    continue
                if _is_longer(path, target, table):
                    layout.make_folder(target.parent)
                    path.replace(target)
                    parquet_files.sync(target.parent)
                    places.append(place)
                else:
                    path.unlink()
    for top, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # what is no file of ours stays
            os.rmdir(top)
    return places


def _is_longer(path: Path, target: Path, table: type[Row]) -> bool:
    """Whether a file has more of its recording than the one that it is to replace."""
    if table in SHARED or not target.exists():
        return True
    try:
        held = recordings.extents(target, table)
    except UnreadableError:
        return True
    try:
        found = recordings.extents(path, table)
    except UnreadableError:
        return False
    return any(source not in held or held[source] < extent for source, extent in found.items())


def _remove_stale(top: Path) -> None:
    """Remove what was not set aside to its end."""
    for path in top.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat(follow_symlinks=False).st_mtime > _STALE_S:
                shutil.rmtree(path)

# SPDX-License-Identifier: GPL-2.0-only
"""Local copies of the objects that a question needs: all engines read files.

An object never changes, so a copy that is here is used again. They are below fleet/ of
tlstax.cache_directory(), readable by their owner only, and the longest unused are removed.
"""

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tlstax import cache_directory
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.bucket import copies
from tlstax.analysis.fleet.bucket.address import REQUESTS_MOST, Bucket
from tlstax.analysis.fleet.bucket.copies import Choice, Copy, Held
from tlstax.analysis.fleet.columns import HOUR_NS, TIERS, Row
from tlstax.analysis.fleet.store import layout, parquet_files, selection
from tlstax.analysis.fleet.store.layout import PARTIAL
from tlstax.analysis.fleet.store.parquet_files import UnreadableError
from tlstax.analysis.fleet.store.selection import Selection
from tlstax.collectors.capture.printable import output_error

CACHE_BYTES: Final = 4 << 30
_UNUSED_S: Final = 3600
"""Copies that were used later are not removed: a question may read them now."""

Hours = dict[int, list[Held]]


def root(bucket: Bucket) -> Path:
    """The folder of a bucket's copies; the same name at another endpoint has another one."""
    where = (
        f"{os.environ.get('AWS_ENDPOINT_URL_S3') or os.environ.get('AWS_ENDPOINT_URL')} {bucket}"
    )
    named = hashlib.blake2b(where.encode(), digest_size=8).hexdigest()
    return cache_directory() / "fleet" / named


def hours(bucket: Bucket, tiers: Iterable[str] = TIERS) -> list[int]:
    """The start of every hour that has intervals. Raises TlstaxError (IO)."""
    found = (
        copies.place_of(stored.key)
        for tier in tiers
        for stored in bucket.listing(copies.table_folder(tier, columns.Interval))
    )
    return sorted({one[0].hour_wall_ns for one in found if one is not None})


def tiers_with(bucket: Bucket, span: tuple[int, int]) -> list[str]:
    """The tiers that have intervals in this time. Raises TlstaxError (IO)."""
    first_ns, end_ns = span
    return [
        tier
        for tier in TIERS
        if any(first_ns - HOUR_NS < hour_ns < end_ns for hour_ns in hours(bucket, [tier]))
    ]


def select(
    bucket: Bucket,
    tier: str,
    tables: Iterable[type[Row]],
    span: tuple[int | None, int | None] = (None, None),
) -> Selection:
    """Copies of the objects of these tables that may hold intervals in the span.

    As `selection.select`. Raises TlstaxError (IO, CAPTURE, FAILED).
    """
    trim(root(bucket).parent)
    return copies.again(lambda: _select(bucket, tier, tuple(tables), span))


def _select(
    bucket: Bucket, tier: str, tables: Sequence[type[Row]], span: tuple[int | None, int | None]
) -> Selection:
    made = Selection(tier)
    intervals: dict[str, Hours] = {}
    winners: dict[str, dict[int, dict[int, Copy]]] = {}
    # Intervals first: what they name is kept long enough to be read (`compaction`).
    for one in dict.fromkeys(selection.tier_of(tier, table) for table in tables):
        intervals[one] = listed(bucket, one, columns.Interval, made.left_out, span)
        winners[one] = winners_of(intervals[one])
    for table in tables:
        one = selection.tier_of(tier, table)
        is_known = table is columns.Interval
        found = intervals[one] if is_known else listed(bucket, one, table, made.left_out, span)
        made.files[table] = _files(bucket, found, winners[one], made.left_out)
        if table._field_defaults:
            footers = ((path, parquet_files.check(path, table)) for path in made.files[table])
            some = ((path, parquet_files.lacking(footer, table)) for path, footer in footers)
            made.lacking.update((path, names) for path, names in some if names)
    return made


def _files(
    bucket: Bucket, found: Hours, winners: dict[int, dict[int, Copy]], left_out: list[str]
) -> list[Path]:
    """The rows that count; of a damaged object those that others have."""
    damaged: set[str] = set()
    while True:
        chosen = [
            choice
            for hour_ns in sorted(found)
            for choice in copies.choose(found[hour_ns], winners.get(hour_ns, {}), damaged)
        ]
        fetched = fetch(bucket, chosen, left_out)
        whole = {choice.held.stored.key for choice, _ in fetched}
        if len(whole) == len(chosen):
            return [path for _, path in fetched]
        damaged.update(choice.held.stored.key for choice in chosen)
        damaged -= whole


def winners_of(intervals: Hours) -> dict[int, dict[int, Copy]]:
    """The copies that count, by hour."""
    return {hour_ns: copies.winners(held) for hour_ns, held in intervals.items()}


def listed(
    bucket: Bucket,
    tier: str,
    table: type[Row],
    left_out: list[str],
    span: tuple[int | None, int | None] = (None, None),
) -> Hours:
    """The objects of a table by hour. Raises TlstaxError (IO)."""
    first_ns, end_ns = span
    inside = []
    for stored in bucket.listing(copies.table_folder(tier, table)):
        where = copies.place_of(stored.key)
        start_ns = where[0].hour_wall_ns if where else 0
        is_late = end_ns is not None and start_ns >= end_ns
        if where and not is_late and (first_ns is None or start_ns + HOUR_NS > first_ns):
            inside.append(stored)
    return copies.held_in(bucket, inside, left_out)


def fetch(
    bucket: Bucket, chosen: Sequence[Choice], left_out: list[str]
) -> list[tuple[Choice, Path]]:
    """Local files with the chosen rows, in order; those that are damaged are told.

    Raises FileNotFoundError where an object is gone, TlstaxError (IO, CAPTURE).
    """
    top = root(bucket)
    with ThreadPoolExecutor(REQUESTS_MOST) as pool:
        whole = list(pool.map(lambda choice: _fetched(bucket, choice.held, top), chosen))
    made = []
    for choice, path in zip(chosen, whole, strict=True):
        table = choice.held.place.table
        try:
            parquet_files.check(path, table)
            rest = _without(path, table, choice.without) if choice.without else path
            made.append((choice, rest))
        except UnreadableError as error:
            path.unlink(missing_ok=True)
            left_out.append(f"{bucket.url(choice.held.stored.key)} was not read: {error}")
    return made


def _fetched(bucket: Bucket, held: Held, top: Path) -> Path:
    """The local copy of an object."""
    path = top / held.stored.key
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == held.stored.size_bytes:
                os.utime(path)
                return path
        layout.make_folder(path.parent)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for piece in bucket.read(held.stored.key):
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise output_error(f"to the cache ({path})", error) from error
    return path


def _without(path: Path, table: type[Row], sources: frozenset[int]) -> Path:
    """A file with the rows of the other recordings."""
    named = hashlib.blake2b(repr(sorted(sources)).encode(), digest_size=8).hexdigest()
    rest = path.with_name(f"{path.stem}-without-{named}.parquet")
    if rest.exists():
        os.utime(rest)
        return rest
    pyarrow, compute = parquet_files.arrow(), parquet_files.arrow("pyarrow.compute")
    left = pyarrow.array(sorted(sources), pyarrow.int64())
    others = (
        rows.filter(compute.invert(compute.is_in(rows["source_id"], value_set=left)))
        for rows in parquet_files.groups(path)
    )
    parquet_files.write(rest, table, others)
    return rest


def trim(top: Path, most_bytes: int = CACHE_BYTES) -> None:
    """Remove what was not used for longest until the rest has room."""
    found = []
    for path in top.rglob("*"):
        with contextlib.suppress(OSError):
            known = path.lstat()
            if not path.is_dir():
                found.append((known.st_mtime, known.st_size, path))
    size = sum(one[1] for one in found)
    for used_s, size_bytes, path in sorted(found):
        if size <= most_bytes or time.time() - used_s < _UNUSED_S:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        size -= size_bytes

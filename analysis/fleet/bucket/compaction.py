# SPDX-License-Identifier: GPL-2.0-only
"""Merge the objects of each hour into one, and remove what nobody reads any more.

The merged object is put under a new name. What it replaces is removed by a later run, when no
reader that listed the bucket before can still want it: readers need no lock.
"""

import secrets
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.bucket import copies, mirror
from tlstax.analysis.fleet.bucket.address import REQUESTS_MOST, Bucket, Stored
from tlstax.analysis.fleet.bucket.copies import Choice, Copy, Held
from tlstax.analysis.fleet.columns import SECOND_NS, TABLES, TIERS, Row, tiers_of
from tlstax.analysis.fleet.store import compaction, packing, parquet_files
from tlstax.analysis.fleet.store.compaction import Outcome
from tlstax.analysis.fleet.store.layout import Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError

GRACE_NS: Final = 15 * 60 * SECOND_NS
"""So long after it was replaced an object is kept: stores refuse clocks that differ by more."""
UNFINISHED_NS: Final = 24 * 3600 * SECOND_NS
"""So old is an object whose writer is taken for dead."""


def compact(bucket: Bucket, now_wall_ns: int | None = None) -> Outcome:
    """Compact hours with more than one object of a table. Raises TlstaxError (IO, CAPTURE).

    Such hours are known by the names of their objects: nothing is read of the others.
    """
    now_ns = time.time_ns() if now_wall_ns is None else now_wall_ns
    mirror.trim(mirror.root(bucket).parent)
    folders = merged = 0
    left_out: list[str] = []
    for tier in TIERS:
        listed = bucket.listing(f"tier={tier}")
        hours = copies.to_compact(listed)
        told: list[str] = []
        intervals = _held(bucket, tier, columns.Interval, listed, hours, told)
        left_out += told
        now, before = (
            mirror.winners_of({hour: list(keep(held)) for hour, held in intervals.items()})
            for keep in (list, lambda held: _older(held, now_ns - GRACE_NS))
        )
        held_up: set[int] = set()
        for table in _intervals_last(tier):
            is_last = table is columns.Interval
            found = intervals if is_last else _held(bucket, tier, table, listed, hours, left_out)
            for hour_ns, held in found.items():
                of, of_before = now.get(hour_ns, {}), before.get(hour_ns, {})
                is_merged = _is_merged(intervals.get(hour_ns, []), of)
                damaged: set[str] = set()
                count = _merge(bucket, held, of, now_ns, left_out, damaged, is_merged=is_merged)
                folders += count > 0
                merged += count
                if told or (is_last and hour_ns in held_up):
                    continue  # rows may belong to intervals that cannot be read
                rest = _remove(bucket, held, of, of_before, now_ns, damaged)
                if not count and not _is_done(rest, of):
                    held_up.add(hour_ns)
    return Outcome(folders, merged, left_out)


def _intervals_last(tier: str) -> list[type[Row]]:
    """The tables of a tier. While intervals have several objects, a next run looks at the hour."""
    found = [table for table in TABLES if tier in tiers_of(table)]
    return sorted(found, key=lambda table: table is columns.Interval)


def _held(
    bucket: Bucket,
    tier: str,
    table: type[Row],
    listed: list[Stored],
    hours: Collection[int],
    left_out: list[str],
) -> mirror.Hours:
    """The objects of a table in these hours; listed again where one was removed meanwhile."""
    first = [copies.of_table(listed, table)]

    def look() -> tuple[mirror.Hours, list[str]]:
        told: list[str] = []
        found = first.pop() if first else bucket.listing(copies.table_folder(tier, table))
        inside = [one for one in found if copies.is_in(one, hours)]
        return copies.held_in(bucket, inside, told), told

    found, told = copies.again(look)
    left_out += told
    return found


def _is_done(rest: list[Held], of: Mapping[int, Copy]) -> bool:
    """Whether a single object that is left of a table in an hour has only rows that count."""
    return len(rest) != 1 or copies.choose(rest, of) == [Choice(rest[0], frozenset())]


def _is_merged(intervals: list[Held], of: Mapping[int, Copy]) -> bool:
    """Whether the intervals of an hour are in a merged object, or will be."""
    return any(one.merged_wall_ns for one in intervals) or len(copies.choose(intervals, of)) > 1


def _older(held: Iterable[Held], before_ns: int) -> list[Held]:
    return [one for one in held if one.stored.changed_wall_ns < before_ns]


def _merge(
    bucket: Bucket,
    held: list[Held],
    of: Mapping[int, Copy],
    now_ns: int,
    left_out: list[str],
    damaged: set[str],
    *,
    is_merged: bool,
) -> int:
    """Merge what counts of an hour, a single object only where the intervals are merged, too.

    How many objects were merged; `damaged` gets the keys of those that cannot be read. What they
    hold is taken of the objects that they were merged of, as long as these are there.
    """
    while (chosen := copies.choose(held, of, damaged)) and (
        len(chosen) > 1
        or any(one.without or (is_merged and not one.held.merged_wall_ns) for one in chosen)
    ):
        try:
            _put_merged(bucket, chosen, chosen[0].held.place, of, now_ns)
            return len(chosen)
        except _DamagedError as error:
            left_out.append(f"{bucket.url(error.key)} was not merged: {error}")
            damaged.add(error.key)
        except _GoneError:
            return 0  # another one merged it
    return 0


class _GoneError(Exception):
    """An object was removed."""


class _DamagedError(Exception):
    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def _put_merged(
    bucket: Bucket, chosen: list[Choice], place: Place, of: Mapping[int, Copy], now_ns: int
) -> None:
    """Raises _GoneError, _DamagedError."""
    told: list[str] = []
    try:
        fetched = mirror.fetch(bucket, chosen, told)
    except FileNotFoundError as error:
        raise _GoneError from error
    keys = {path: one.held.stored.key for one, path in fetched}
    whole = set(keys.values())
    if damaged := [key for one in chosen if (key := one.held.stored.key) not in whole]:
        raise _DamagedError(damaged[0], told[0].rpartition(": ")[2])
    held = {
        source_id: of[source_id]
        for one in chosen
        for source_id, copy in one.held.copies.items()
        if source_id not in one.without and of.get(source_id) == copy
    }
    with tempfile.TemporaryDirectory(prefix="tlstax-compact-") as folder:
        local = Path(folder) / "merged.parquet"
        try:
            count = sum(parquet_files.check(path, place.table).num_rows for path in keys)
            level = packing.merged_level(place.table, count)
            noted = {copies.COPIES_KEY: copies.footer_text(held)}
            rows = compaction.sorted_rows(list(keys), place)
            parquet_files.write(local, place.table, rows, level, noted)
        except UnreadableError as error:
            raise _DamagedError(keys[error.path], str(error)) from error
        bucket.put(local, copies.merged_key(place, now_ns, secrets.token_hex(8)))


def _remove(
    bucket: Bucket,
    held: list[Held],
    of: Mapping[int, Copy],
    of_before: Mapping[int, Copy],
    now_ns: int,
    damaged: Collection[str],
) -> list[Held]:
    """Remove objects that no reader has chosen for some time; those that are left.

    What has to stand in for a damaged object stays, and so does that one until others have its
    rows.
    """
    old = _older(held, now_ns - GRACE_NS)
    wanted = {
        choice.held.stored.key
        for without in ((), damaged)
        for choice in (*copies.choose(held, of, without), *copies.choose(old, of_before, without))
    }
    unwanted = []
    for one in old:
        is_young = one.stored.changed_wall_ns > now_ns - UNFINISHED_NS
        if one.stored.key not in wanted and not (copies.is_unfinished(one, of) and is_young):
            unwanted.append(one.stored.key)
    with ThreadPoolExecutor(REQUESTS_MOST) as pool:
        list(pool.map(bucket.remove, unwanted))
    return [one for one in held if one.stored.key not in unwanted]

# SPDX-License-Identifier: GPL-2.0-only
"""The names of objects, and which of them count.

A store has no rename and no lock, so no object is ever changed, and none says what another one has
to be. A recording that is added is a *copy*: its objects carry its name, those of `interval` are
put last. Of several copies of a recording, the greatest with intervals in that hour counts, in all
tables: the one with more recorded time, then the one that was added later. So writers need not
know of each other, and the order in which objects arrive does not matter. `compacted-…` holds rows
of many recordings and says in its footer of which copies.
"""

import contextlib
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from tlstax import TlstaxError
from tlstax.analysis.fleet.bucket.address import REQUESTS_MOST, Bucket, Stored
from tlstax.analysis.fleet.columns import BY_NAME, SECOND_NS, SHARED, TIERS, Interval, Row
from tlstax.analysis.fleet.store import layout, parquet_files
from tlstax.analysis.fleet.store.layout import Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError
from tlstax.collectors.capture.schema import table_name

COPIES_KEY: Final = b"tlstax.copies"
_KEY: Final = re.compile(
    r"tier=(\w+)/table=(\w+)/date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/([^/]+)", re.ASCII
)
_COPY: Final = r"([0-9a-f]{16})-([0-9a-f]{4})-([0-9a-f]{16})"
_PART: Final = re.compile(rf"part-([0-9a-f]{{16}})-{_COPY}\.parquet")
_MERGED: Final = re.compile(r"compacted-([0-9a-f]{16})-[0-9a-f]{16}\.parquet")
_IN_FOOTER: Final = re.compile(rf"([0-9a-f]{{16}})-{_COPY}")
_UNSIGNED: Final = 2**64
_ATTEMPTS: Final = 3
_Found = TypeVar("_Found")


class Copy(NamedTuple):
    """A copy of a recording; the greatest counts."""

    recorded_ns: int
    generation: int
    """Of copies with the same recorded time."""
    digest: str
    """Of its rows."""

    def __str__(self) -> str:
        return f"{self.recorded_ns:016x}-{self.generation:04x}-{self.digest}"


class Held(NamedTuple):
    """An object, and of which recordings it holds which copy."""

    stored: Stored
    place: Place
    copies: Mapping[int, Copy]
    merged_wall_ns: int
    """When it was merged; 0: it is of one recording."""


class Choice(NamedTuple):
    """An object to read, without these recordings: others have them, or a greater copy."""

    held: Held
    without: frozenset[int]


def table_folder(tier: str, table: type[Row]) -> str:
    """The folder of a table in the bucket."""
    return f"tier={tier}/table={table_name(table)}"


def folder_of(place: Place) -> str:
    """The folder of an hour in the bucket."""
    at = datetime.fromtimestamp(place.hour_wall_ns // SECOND_NS, UTC)
    table = table_folder(place.tier, place.table)
    return f"{table}/date={at:%Y-%m-%d}/hour={at:%H}"


def part_key(place: Place, source_id: int, copy: Copy) -> str:
    """The object of a recording's rows in an hour."""
    return f"{folder_of(place)}/part-{source_id % _UNSIGNED:016x}-{copy}.parquet"


def merged_key(place: Place, now_wall_ns: int, random: str) -> str:
    """An object of many recordings; `random`: 16 hexadecimal digits."""
    return f"{folder_of(place)}/compacted-{now_wall_ns:016x}-{random}.parquet"


def digest_of(tables: Mapping[Place, Any]) -> str:
    """What tells the rows of two copies apart."""
    made = hashlib.blake2b(digest_size=8)
    for place, rows in sorted(tables.items(), key=lambda item: folder_of(item[0])):
        made.update(folder_of(place).encode())
        made.update(json.dumps(rows.to_pydict(), sort_keys=True).encode())
    return made.hexdigest()


def footer_text(copies: Mapping[int, Copy]) -> bytes:
    """What a merged object says of its rows."""
    named = sorted((source_id % _UNSIGNED, copy) for source_id, copy in copies.items())
    return "\n".join(f"{source:016x}-{copy}" for source, copy in named).encode()


def place_of(key: str) -> tuple[Place, str] | None:
    """The hour of an object and the rest of its name; None for what is none of ours."""
    found = _KEY.fullmatch(key)
    if found is None or found[1] not in TIERS or found[2] not in BY_NAME:
        return None
    hour = layout.start_of(found[3], found[4])
    if hour is None or found[4] == layout.WHOLE_DAY:
        return None
    return Place(found[1], BY_NAME[found[2]], hour), found[5]


def of_table(listed: Iterable[Stored], table: type[Row]) -> list[Stored]:
    """The objects of a table, and those in its folders with names that tlstax does not give."""
    return [one for one in listed if (where := place_of(one.key)) and where[0].table is table]


def to_compact(listed: Iterable[Stored]) -> set[int]:
    """The hours of a tier that need compaction, by the names of all its objects alone.

    An hour needs none if each table has one object at most, and these are merged ones, or all of
    the same copy of one recording. Objects of intervals are removed last (`compaction`): as long as
    an object of the hour holds rows that do not count, its intervals have more than one.
    """
    forms: dict[int, dict[type[Row], list[str]]] = defaultdict(lambda: defaultdict(list))
    for stored in listed:
        if (where := place_of(stored.key)) and (form := _form(where[1])):
            forms[where[0].hour_wall_ns][where[0].table].append(form)
    return {
        hour_ns
        for hour_ns, tables in forms.items()
        if Interval not in tables
        or any(len(found) > 1 for found in tables.values())
        or len({form for found in tables.values() for form in found}) > 1
    }


def is_in(stored: Stored, hours: Collection[int]) -> bool:
    """Whether an object is in one of these hours, or has a name that tlstax does not give."""
    where = place_of(stored.key)
    return where is not None and (where[0].hour_wall_ns in hours or not _form(where[1]))


def _form(name: str) -> str:
    """What objects of a compacted hour have in common: the copy, or that they were merged."""
    if part := _PART.fullmatch(name):
        return part[0]
    return "merged" if _MERGED.fullmatch(name) else ""


def held_in(bucket: Bucket, listed: Iterable[Stored], left_out: list[str]) -> dict[int, list[Held]]:
    """The objects of one table of a tier by hour; what cannot be one is told.

    Raises FileNotFoundError where one was removed meanwhile, TlstaxError (IO).
    """
    made: dict[int, list[Held]] = defaultdict(list)
    ours = [(stored, where) for stored in listed if (where := place_of(stored.key))]
    with ThreadPoolExecutor(REQUESTS_MOST) as pool:
        footers = {
            stored.key: pool.submit(_in_footer, bucket, stored)
            for stored, (_, name) in ours
            if _MERGED.fullmatch(name)
        }
        for stored, (place, name) in ours:
            part, merged = _PART.fullmatch(name), _MERGED.fullmatch(name)
            hour = made[place.hour_wall_ns]
            try:
                if part is not None:
                    hour.append(Held(stored, place, dict([_copy(part)]), 0))
                elif merged is not None:
                    held = footers[stored.key].result()
                    hour.append(Held(stored, place, held, int(merged[1], 16)))
                else:
                    left_out.append(
                        f"{bucket.url(stored.key)} was not read: tlstax gives objects other names"
                    )
            except UnreadableError as error:
                left_out.append(f"{bucket.url(stored.key)} was not read: {error}")
    return made


def _copy(found: re.Match[str]) -> tuple[int, Copy]:
    source = int(found[1], 16)
    copy = Copy(int(found[2], 16), int(found[3], 16), found[4])
    return source - _UNSIGNED if source >= _UNSIGNED // 2 else source, copy


def _in_footer(bucket: Bucket, stored: Stored) -> dict[int, Copy]:
    footer = parquet_files.footer_of(Path(stored.key), bucket.footer(stored.key))
    noted = (footer.metadata or {}).get(COPIES_KEY, b"")
    found = [_IN_FOOTER.fullmatch(line) for line in noted.decode("ascii", "replace").split("\n")]
    copies = dict(_copy(one) for one in found if one is not None)
    if len(copies) != len(found):
        raise UnreadableError(Path(stored.key), "it does not say whose rows it holds")
    return copies


def again(action: Callable[[], _Found]) -> _Found:
    """Look again if an object was removed meanwhile. Raises TlstaxError (FAILED)."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            return action()
    raise TlstaxError(
        "cannot read the data set",
        "its objects were removed while they were read, several times",
        "Try again when nobody removes objects, for example by a rule of the bucket",
    )


def winners(intervals: Iterable[Held]) -> dict[int, Copy]:
    """The copy of each recording that counts in an hour, from its objects of `interval`."""
    made: dict[int, Copy] = {}
    for held in intervals:
        for source_id, copy in held.copies.items():
            made[source_id] = max(copy, made.get(source_id, copy))
    return made


def choose(
    held: Iterable[Held], of: Mapping[int, Copy], damaged: Collection[str] = ()
) -> list[Choice]:
    """The objects of one table and hour to read: each recording once, in the copy that counts.

    The newest merged ones first: they hold what earlier ones hold, or most of it. `damaged`: keys
    of objects that cannot be read.
    """
    taken: set[int] = set()
    made = []
    whole = [one for one in held if one.stored.key not in damaged]
    for one in sorted(whole, key=lambda one: (-one.merged_wall_ns, one.stored.key)):
        mine = {
            source_id
            for source_id, copy in one.copies.items()
            if of.get(source_id) == copy and source_id not in taken
        }
        if mine:
            is_shared = one.place.table in SHARED
            rest = frozenset() if is_shared else frozenset(one.copies.keys() - mine)
            made.append(Choice(one, rest))
            taken |= mine
    return made


def is_unfinished(held: Held, of: Mapping[int, Copy]) -> bool:
    """Whether its intervals may still come."""
    return any(
        source_id not in of or copy > of[source_id] for source_id, copy in held.copies.items()
    )

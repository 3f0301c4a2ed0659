# SPDX-License-Identifier: GPL-2.0-only
"""Put a recording into a bucket: its objects whole, under final names, those of `interval` last.

Nothing is replaced or removed: a copy that was put in part has no intervals in those hours, and a
longer copy counts in place of a shorter one, whichever comes first (`copies`). What is missing of a
copy is put again.
"""

import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.bucket import copies
from tlstax.analysis.fleet.bucket.address import REQUESTS_MOST, Bucket
from tlstax.analysis.fleet.bucket.copies import Copy
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, parquet_files
from tlstax.analysis.fleet.store.adding import ADDED, CHANGED, KNOWN, LONGER, REPLACED, Files
from tlstax.analysis.fleet.store.layout import Place

_MOST_GENERATIONS: Final = 2**16 - 1


def add(rolled: RolledUp, bucket: Bucket) -> str:
    """Add a recording; what became of it. Raises TlstaxError (IO, HOST)."""
    files, source_id = adding.by_place(rolled), rolled.recording.source_id
    new_ns, digest = adding.recorded_ns_of(files), copies.digest_of(files)
    known = _known(bucket, files, source_id)
    best = max((copy for copy in known if copy is not None), default=None)
    if best is not None and best.recorded_ns > new_ns:
        return LONGER
    is_same = best is not None and best.digest == digest and set(known) == {best}
    if best is not None and is_same and _is_whole(bucket, files, source_id, best):
        return KNOWN
    generation = 0
    if best is not None and best.recorded_ns == new_ns:
        generation = best.generation + (best.digest != digest)
    _put(bucket, files, source_id, Copy(new_ns, min(generation, _MOST_GENERATIONS), digest))
    if best is None:
        return ADDED
    return CHANGED if best.recorded_ns == new_ns else REPLACED


def _known(bucket: Bucket, files: Files, source_id: int) -> list[Copy | None]:
    """The copy of the recording that counts in each of its hours and tiers."""
    made = []
    for place in files:
        if place.table is columns.Interval:
            made.append(copies.again(functools.partial(_counts, bucket, place)).get(source_id))
    return made


def _counts(bucket: Bucket, place: Place) -> dict[int, Copy]:
    """The copies that count in an hour of a tier."""
    stored = bucket.listing(copies.folder_of(place))
    return copies.winners(copies.held_in(bucket, stored, []).get(place.hour_wall_ns, []))


def _is_whole(bucket: Bucket, files: Files, source_id: int, copy: Copy) -> bool:
    """Whether no object of a copy is missing."""

    def has(place: Place) -> bool:
        stored = bucket.listing(copies.folder_of(place))
        found = copies.held_in(bucket, stored, []).get(place.hour_wall_ns, [])
        return any(held.copies.get(source_id) == copy for held in found)

    with ThreadPoolExecutor(REQUESTS_MOST) as pool:
        return all(pool.map(lambda place: copies.again(lambda: has(place)), files))


def _put(bucket: Bucket, files: Files, source_id: int, copy: Copy) -> None:
    with tempfile.TemporaryDirectory(prefix="tlstax-add-") as folder:
        local = Path(folder) / "part.parquet"
        for place, rows in files.items():  # in an order that has intervals last
            parquet_files.write(local, place.table, [rows])
            bucket.put(local, copies.part_key(place, source_id, copy))

# SPDX-License-Identifier: GPL-2.0-only
"""A data set of objects: which copy counts, in whatever order they come, and what is removed when.

The objects are files of a folder here, through the same client interface of pyarrow; a real server
speaks S3 in tests/object_store.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet.bucket import adding, address, compaction
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.columns import TABLES, TIERS
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding as store_adding
from tlstax.collectors.capture.schema import table_name
from tlstax.tests.fleet_rows import of_cluster, renamed, totals

MINUTE_NS = 60_000_000_000
BUCKET = Bucket("fleet", "all")


def sums(tier: str = "1h") -> dict[str, Any]:
    return totals(BUCKET, tier)


@pytest.fixture(scope="module")
def expected(rolled: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The sums of one recording in a folder."""
    data = tmp_path_factory.mktemp("expected")
    store_adding.add(rolled, data)
    return totals(data)


def age(objects: Path, minutes: float) -> None:
    """Let what is stored be older."""
    for path in objects.rglob("*.parquet"):
        at = path.stat().st_mtime - minutes * 60
        os.utime(path, (at, at))


def names(objects: Path) -> set[str]:
    return {str(path.relative_to(objects)) for path in objects.rglob("*.parquet")}


Objects = list[tuple[Path, str]]


def held_back(copy: RolledUp, folder: Path) -> Objects:
    """What a writer that knows of no other would put, in order."""
    made: Objects = []

    def keep(self: Bucket, local: Path, key: str) -> None:
        made.append((local.rename(folder / f"{copy.recording.source_id}-{len(made)}.kept"), key))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))  # of one file system with it
        patch.setattr(Bucket, "put", keep)
        adding.add(copy, BUCKET)
    return made


def put_all(objects: Objects) -> None:
    for local, key in objects:
        BUCKET.put(local, key)


def test_a_bucket_holds_the_sums_of_a_folder(
    rolled: RolledUp, objects: Path, expected: dict[str, Any]
) -> None:
    assert adding.add(rolled, BUCKET) == store_adding.ADDED
    before = names(objects)
    assert adding.add(rolled, BUCKET) == store_adding.KNOWN
    assert names(objects) == before
    assert sums() == expected


def test_a_longer_copy_counts_and_a_shorter_one_is_ignored(
    rolled: RolledUp, half: RolledUp, objects: Path, expected: dict[str, Any]
) -> None:
    assert adding.add(half, BUCKET) == store_adding.ADDED
    assert adding.add(rolled, BUCKET) == store_adding.REPLACED
    assert sums() == expected
    assert adding.add(half, BUCKET) == store_adding.LONGER
    assert sums() == expected
    assert adding.add(of_cluster(rolled, "eu"), BUCKET) == store_adding.CHANGED
    assert adding.add(rolled, BUCKET) == store_adding.CHANGED
    assert sums() == expected


@pytest.mark.parametrize("table", ["ledger", "stack", "interval"])
def test_what_is_missing_of_a_recording_is_put_again(
    rolled: RolledUp, objects: Path, expected: dict[str, Any], table: str
) -> None:
    adding.add(rolled, BUCKET)
    before = names(objects)
    next(objects.glob(f"tier=1h/table={table}/**/*.parquet")).unlink()
    assert adding.add(rolled, BUCKET) == store_adding.CHANGED
    assert names(objects) == before
    assert sums() == expected


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 1, 0), (1, 0, 0, 1), (0, 1, 0, 1)])
def test_two_writers_of_one_recording_mix_nothing(
    rolled: RolledUp,
    half: RolledUp,
    objects: Path,
    expected: dict[str, Any],
    order: tuple[int, ...],
    tmp_path: Path,
) -> None:
    waiting = []
    for name, copy in (("whole", rolled), ("half", half)):
        (tmp_path / name).mkdir()
        waiting.append(held_back(copy, tmp_path / name))
    wholes = [len(one) for one in waiting]
    for number in order:
        count = wholes[number] // order.count(number) + 1
        put_all(waiting[number][:count])
        del waiting[number][:count]
    assert waiting == [[], []]
    assert sums() == expected


def test_a_slow_writer_of_a_shorter_copy_takes_nothing_from_what_was_compacted(
    rolled: RolledUp, half: RolledUp, objects: Path, tmp_path: Path
) -> None:
    late = held_back(renamed(half, "db1", 1), tmp_path)
    for number in (1, 2):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    before = sums()
    compaction.compact(BUCKET)
    age(objects, 20)
    compaction.compact(BUCKET)
    put_all(late)
    assert sums() == before
    age(objects, 20)
    compaction.compact(BUCKET)
    assert sums() == before
    assert all("/compacted-" in name for name in names(objects))


@pytest.mark.parametrize("tier", TIERS)
def test_a_recording_put_in_part_is_not_counted(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    put, count = Bucket.put, itertools.count()

    def die_later(self: Bucket, local: Path, key: str) -> None:
        if "table=interval" in key:
            raise KeyboardInterrupt
        next(count)
        put(self, local, key)

    monkeypatch.setattr(Bucket, "put", die_later)
    with pytest.raises(KeyboardInterrupt):
        adding.add(rolled, BUCKET)
    assert next(count) > 10
    assert {**sums(tier), "frames": 0, "left_out": 0} == {
        **dict.fromkeys(sums(), None), "frames": 0, "left_out": 0
    }  # fmt: skip
    monkeypatch.setattr(Bucket, "put", put)
    assert adding.add(rolled, BUCKET) == store_adding.ADDED


@pytest.mark.parametrize("tier", TIERS)
def test_compaction_keeps_every_sum_and_removes_later(
    rolled: RolledUp, objects: Path, tier: str
) -> None:
    for number in range(1, 4):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    before, parts = sums(tier), names(objects)
    outcome = compaction.compact(BUCKET)
    assert outcome.merged_count == 3 * outcome.hours_count > 0
    assert parts < names(objects)  # a reader that listed them may still read them
    assert sums(tier) == before
    age(objects, 10)
    compaction.compact(BUCKET)
    assert parts < names(objects)
    age(objects, 10)
    assert compaction.compact(BUCKET) == (0, 0, [])
    left = names(objects)
    assert len(left) == outcome.hours_count
    assert all("/compacted-" in name for name in left)
    assert sums(tier) == before


def test_a_longer_copy_of_what_was_compacted_counts_alone(
    rolled: RolledUp, half: RolledUp, objects: Path, expected: dict[str, Any]
) -> None:
    adding.add(renamed(half, "db1", 1), BUCKET)
    adding.add(renamed(rolled, "db2", 2), BUCKET)
    compaction.compact(BUCKET)
    age(objects, 20)
    compaction.compact(BUCKET)
    assert adding.add(renamed(half, "db1", 1), BUCKET) == store_adding.KNOWN
    assert adding.add(renamed(rolled, "db1", 1), BUCKET) == store_adding.REPLACED
    twice = {
        name: value * 2 if isinstance(value, float) else value for name, value in expected.items()
    }
    twice["frames"] = None  # frames that only the first half needed stay: they are names
    assert {**sums(), "frames": None} == twice
    for _ in range(3):
        compaction.compact(BUCKET)
        assert {**sums(), "frames": None} == twice
        age(objects, 20)
    assert all("/compacted-" in name for name in names(objects))


def test_two_compactions_at_once_count_nothing_twice(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each sees two of three recordings, and both put what they merged.
    for number in (1, 2, 3):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    before = sums()
    listing = Bucket.listing
    for hidden in (3, 1):
        name = f"part-{hidden:016x}"
        with monkeypatch.context() as patch:
            patch.setattr(
                Bucket,
                "listing",
                lambda self, folder, name=name: [
                    one
                    for one in listing(self, folder)
                    if name not in one.key and "compacted" not in one.key
                ],
            )
            compaction.compact(BUCKET)
    assert sums() == before
    age(objects, 20)
    for _ in range(3):
        compaction.compact(BUCKET)
        assert sums() == before
        age(objects, 20)
    assert len(names(objects)) == sum(1 for table in TABLES for _ in objects.glob(
        f"tier=*/table={table_name(table)}/date=*/hour=*"))  # fmt: skip


def test_unfinished_objects_are_removed_after_a_day(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding.add(renamed(rolled, "db1", 1), BUCKET)
    put = Bucket.put
    monkeypatch.setattr(
        Bucket, "put", lambda self, local, key: "interval" in key or put(self, local, key)
    )
    adding.add(renamed(rolled, "db2", 2), BUCKET)
    monkeypatch.setattr(Bucket, "put", put)
    parts = [name for name in names(objects) if "part-0000000000000002" in name]
    assert parts
    age(objects, 60)
    compaction.compact(BUCKET)
    assert set(parts) < names(objects)  # its writer may be slow
    age(objects, 24 * 60)
    compaction.compact(BUCKET)
    assert not set(parts) & names(objects)
    assert sums()["interval"] is not None


def test_half_an_object_is_named_and_not_read(rolled: RolledUp, objects: Path) -> None:
    adding.add(rolled, BUCKET)
    adding.add(renamed(rolled, "db2", 2), BUCKET)
    (hit,) = objects.glob("tier=1h/table=ledger/**/part-0000000000000002-*.parquet")
    hit.write_bytes(hit.read_bytes()[:-100])
    assert sums()["left_out"] == [
        f"{BUCKET.url(str(hit.relative_to(objects)))} was not read: it is no whole Parquet file"
    ]
    assert "was not merged" in compaction.compact(BUCKET).left_out[0]
    age(objects, 20)
    compaction.compact(BUCKET)
    assert hit.exists()


@pytest.mark.parametrize("damage", [b"\xff" * 8, b"\x15\x04\x19\xff"], ids=["kind", "length"])
def test_a_footer_that_makes_no_sense_costs_its_object_alone(
    rolled: RolledUp, objects: Path, damage: bytes
) -> None:
    """It is no failure of the store, whose credentials would be looked at."""
    for number in (1, 2):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    compaction.compact(BUCKET)
    (hit,) = objects.glob("tier=1h/table=ledger/**/compacted-*.parquet")
    content = hit.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    hit.write_bytes(content[:start] + damage + content[start + len(damage) :])
    assert sums()["left_out"] == [
        f"{BUCKET.url(str(hit.relative_to(objects)))} was not read: it is no whole Parquet file"
    ]


def test_a_footer_that_is_longer_than_what_is_read_first_is_read_whole(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, Any]
) -> None:
    adding.add(rolled, BUCKET)
    adding.add(renamed(rolled, "db2", 2), BUCKET)
    compaction.compact(BUCKET)
    both = sums()
    assert both != expected
    monkeypatch.setattr(address, "_END_BYTES", 16)
    assert sums() == both


def test_other_objects_are_told_and_left_alone(rolled: RolledUp, objects: Path) -> None:
    adding.add(rolled, BUCKET)
    (one,) = objects.glob("tier=1h/table=ledger/**/*.parquet")
    other = one.with_name("mine.parquet")
    other.write_bytes(b"x")
    (objects / "README").write_bytes(b"x")
    url = BUCKET.url(str(other.relative_to(objects)))
    assert sums()["left_out"] == [f"{url} was not read: tlstax gives objects other names"]
    age(objects, 3000)
    compaction.compact(BUCKET)
    assert other.exists()

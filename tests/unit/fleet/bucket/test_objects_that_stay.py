# SPDX-License-Identifier: GPL-2.0-only
"""What is damaged, removed or replaced in a bucket: nothing that another object has is lost."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet.bucket import adding, compaction, copies, mirror
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.bucket.copies import Choice
from tlstax.analysis.fleet.columns import Finding
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store.adding import CHANGED
from tlstax.tests.fleet_rows import renamed, totals, without

BUCKET = Bucket("fleet", "all")


def damage(objects: Path, table: str = "ledger") -> Path:
    """Damage the rows of the merged object, not its footer; no local copy is left."""
    (found,) = objects.glob(f"tier=1h/table={table}/**/compacted-*")
    content = found.read_bytes()
    found.write_bytes(content[:4] + b"\xff" * 64 + content[68:])
    shutil.rmtree(mirror.root(BUCKET))
    return found


def age(objects: Path, minutes: float) -> None:
    for path in objects.rglob("*.parquet"):
        at = path.stat().st_mtime - minutes * 60
        os.utime(path, (at, at))


@pytest.fixture
def merged(rolled: RolledUp, objects: Path) -> Path:
    """Two hosts, merged; their own objects are still there."""
    for number in (1, 2):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    compaction.compact(BUCKET)
    return objects


@pytest.mark.parametrize("table", ["ledger", "interval", "frame"])
def test_what_a_damaged_object_was_merged_of_is_merged_again(
    rolled: RolledUp, merged: Path, table: str
) -> None:
    adding.add(renamed(rolled, "db3", 3), BUCKET)
    before = totals(BUCKET)
    damaged = damage(merged, table)
    for run in range(3):
        age(merged, 20)
        told = compaction.compact(BUCKET).left_out
        assert [damaged.name in one for one in told] == ([True] if run == 0 else [])
    assert totals(BUCKET) == before
    (left,) = merged.glob(f"tier=1h/table={table}/**/*.parquet")
    assert left.name.startswith("compacted-")
    assert left != damaged


def test_what_stands_in_for_a_damaged_object_stays_until_it_is_merged(
    rolled: RolledUp, merged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding.add(renamed(rolled, "db3", 3), BUCKET)
    before = totals(BUCKET)
    damaged = damage(merged)
    age(merged, 20)
    real = compaction._put_merged

    def put(bucket: Bucket, chosen: list[Choice], *rest: Any) -> None:
        if "ledger" in chosen[0].held.stored.key and damaged.name not in chosen[0].held.stored.key:
            raise compaction._GoneError  # as if another run were at it
        real(bucket, chosen, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_put_merged", put)
        compaction.compact(BUCKET)
    assert len(list(merged.glob("tier=1h/table=ledger/**/part-*"))) == 3
    compaction.compact(BUCKET)
    assert totals(BUCKET) == before


def test_a_damaged_object_stays_while_nothing_has_its_rows(rolled: RolledUp, merged: Path) -> None:
    for _ in range(2):
        age(merged, 20)
        compaction.compact(BUCKET)
    damaged = damage(merged)
    for number in (3, 4):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
        age(merged, 20)
        told = compaction.compact(BUCKET).left_out
        assert [damaged.name in one for one in told] == [True]
    assert damaged.exists()


def test_a_question_reads_what_a_damaged_object_was_merged_of(
    rolled: RolledUp, half: RolledUp, objects: Path
) -> None:
    for number, copy in ((1, half), (2, rolled)):
        adding.add(renamed(copy, f"db{number}", number), BUCKET)
    compaction.compact(BUCKET)
    adding.add(renamed(rolled, "db1", 1), BUCKET)  # so the merged object is read without db1
    before = totals(BUCKET)
    assert before.pop("left_out") == []
    damaged = damage(objects)
    found = totals(BUCKET)
    assert [damaged.name in one for one in found.pop("left_out")] == [True]
    assert found == before


def test_what_is_put_again_is_merged_where_the_intervals_are(
    rolled: RolledUp, objects: Path
) -> None:
    adding.add(renamed(rolled, "db1", 1), BUCKET)
    adding.add(without(renamed(rolled, "db2", 2), Finding), BUCKET)
    before = totals(BUCKET)
    for run in range(4):
        if run == 2:
            (removed,) = objects.glob("tier=1h/table=finding/**/compacted-*")
            removed.unlink()
            assert adding.add(renamed(rolled, "db1", 1), BUCKET) == CHANGED
        compaction.compact(BUCKET)
        age(objects, 20)
    (found,) = objects.glob("tier=1h/table=finding/**/*.parquet")
    assert found.name.startswith("compacted-")
    assert not copies.to_compact(BUCKET.listing("tier=1h"))
    assert totals(BUCKET) == before


def test_what_was_merged_stays_for_those_who_listed_the_bucket_before(
    rolled: RolledUp, objects: Path
) -> None:
    for number in (1, 2):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    age(objects, 20)
    parts = set(objects.rglob("part-*"))
    for minutes in (0, 14):
        compaction.compact(BUCKET)
        age(objects, minutes)
        assert set(objects.rglob("part-*")) == parts, "replaced less than 15 minutes ago"
    age(objects, 2)
    compaction.compact(BUCKET)
    assert not list(objects.rglob("part-*"))


def test_a_shorter_copy_stays_for_those_who_listed_the_bucket_before(
    half: RolledUp, rolled: RolledUp, objects: Path
) -> None:
    adding.add(renamed(half, "db1", 1), BUCKET)
    shorter = set(objects.rglob("part-*"))
    age(objects, 20)
    adding.add(renamed(rolled, "db1", 1), BUCKET)
    compaction.compact(BUCKET)
    assert shorter <= set(objects.rglob("part-*"))
    age(objects, 16)
    compaction.compact(BUCKET)
    assert not shorter & set(objects.rglob("part-*"))

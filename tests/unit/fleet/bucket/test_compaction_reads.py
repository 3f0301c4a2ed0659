# SPDX-License-Identifier: GPL-2.0-only
"""Compaction in a bucket reads what it needs: hours that are done cost their listing, nothing else.

Whether an hour is done is told by names, so nothing that a run leaves behind may look done.
"""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.bucket import adding, compaction, copies, mirror
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.columns import TABLES, TIERS, Finding, Loss, tiers_of
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import parquet_files
from tlstax.tests.fleet_rows import later, renamed, totals, without

BUCKET = Bucket("fleet", "all")


def age(objects: Path, minutes: float = 20) -> None:
    """Let what is stored be older."""
    for path in objects.rglob("*.parquet"):
        at = path.stat().st_mtime - minutes * 60
        os.utime(path, (at, at))


def settle(objects: Path, runs: int = 2) -> None:
    for _ in range(runs):
        compaction.compact(BUCKET)
        age(objects)


def open_hours() -> dict[str, set[int]]:
    """The hours that a run would look at."""
    found = {tier: copies.to_compact(BUCKET.listing(f"tier={tier}")) for tier in TIERS}
    return {tier: hours for tier, hours in found.items() if hours}


def counted(patch: pytest.MonkeyPatch, method: str) -> list[str]:
    """The first argument of each call of a method of the bucket."""
    asked: list[str] = []
    real: Callable[..., Any] = getattr(Bucket, method)

    def count(self: Bucket, key: str) -> Any:
        asked.append(key)
        return real(self, key)

    patch.setattr(Bucket, method, count)
    return asked


def stale_rows() -> list[str]:
    """Objects with rows of copies that do not count."""
    told: list[str] = []
    found = []
    for tier in TIERS:
        intervals = mirror.listed(BUCKET, tier, columns.Interval, told)
        winners = mirror.winners_of(intervals)
        for table in [one for one in TABLES if tier in tiers_of(one)]:
            for hour_ns, held in mirror.listed(BUCKET, tier, table, told).items():
                of = winners.get(hour_ns, {})
                found += [
                    one.stored.key
                    for one in held
                    if any(of.get(source) != copy for source, copy in one.copies.items())
                ]
    assert told == []
    return found


@pytest.fixture
def old_hour(rolled: RolledUp, objects: Path) -> int:
    """A compacted hour of two hosts, and its start."""
    for number in (1, 2):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    assert open_hours().keys() == set(TIERS)
    settle(objects)
    assert open_hours() == {}
    (hour_ns,) = mirror.hours(BUCKET)
    return hour_ns


def test_a_compacted_hour_costs_its_listing(
    old_hour: int, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    footers, listings = counted(monkeypatch, "footer"), counted(monkeypatch, "listing")
    read, removed = counted(monkeypatch, "read"), counted(monkeypatch, "remove")
    assert compaction.compact(BUCKET) == (0, 0, [])
    assert (footers, read, removed) == ([], [], [])
    assert listings == [f"tier={tier}" for tier in TIERS]


def test_footers_of_hours_with_news_are_read_and_of_no_other(
    rolled: RolledUp, old_hour: int, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (3, 4):
        adding.add(later(renamed(rolled, f"db{number}", number), 1), BUCKET)
    settle(objects)
    adding.add(later(renamed(rolled, "db5", 5), 1), BUCKET)
    (hour_ns,) = open_hours()["1h"]
    assert hour_ns == old_hour + columns.HOUR_NS
    before = totals(BUCKET)
    with monkeypatch.context() as patch:
        footers, read = counted(patch, "footer"), counted(patch, "read")
        assert compaction.compact(BUCKET).merged_count
    places = [found[0] for key in (*footers, *read) if (found := copies.place_of(key))]
    assert {place.hour_wall_ns for place in places} == {hour_ns}
    assert footers
    assert totals(BUCKET) == before


@pytest.mark.parametrize("method", ["put", "remove"])
def test_intervals_are_merged_and_removed_last(
    method: str, rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While an hour has several objects of intervals, a run that was killed is continued.
    for number in (1, 2):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    keys: list[str] = []
    real: Callable[..., Any] = getattr(Bucket, method)

    def note(self: Bucket, *given: Any) -> Any:
        keys.append(given[-1])
        return real(self, *given)

    monkeypatch.setattr(Bucket, method, note)
    settle(objects)
    for tier in TIERS:
        tables = [key.split("/")[1] for key in keys if key.startswith(f"tier={tier}/")]
        first = tables.index("table=interval")
        assert first > 0
        assert set(tables[first:]) == {"table=interval"}


def test_one_recording_alone_stays_as_it_is(rolled: RolledUp, objects: Path) -> None:
    adding.add(rolled, BUCKET)
    assert open_hours() == {}
    age(objects, 3000)
    before = {path.name for path in objects.rglob("*.parquet")}
    assert compaction.compact(BUCKET) == (0, 0, [])
    assert {path.name for path in objects.rglob("*.parquet")} == before


def test_what_a_dead_writer_left_alone_in_a_table_is_removed(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        adding.add(without(renamed(rolled, f"db{number}", number), Finding), BUCKET)
    settle(objects)
    put = Bucket.put
    with monkeypatch.context() as patch:
        patch.setattr(
            Bucket, "put", lambda self, local, key: "finding" in key and put(self, local, key)
        )
        adding.add(renamed(rolled, "db3", 3), BUCKET)
    assert len(list(objects.glob("tier=1h/table=finding/**/part-*"))) == 1
    age(objects, 25 * 60)
    settle(objects)
    assert not list(objects.glob("tier=1h/table=finding/**/*.parquet"))
    assert open_hours() == {}


def test_what_a_dead_writer_left_alone_in_an_hour_is_removed(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Bucket.put
    with monkeypatch.context() as patch:
        patch.setattr(
            Bucket, "put", lambda self, local, key: "finding" in key and put(self, local, key)
        )
        adding.add(rolled, BUCKET)
    assert len(list(objects.rglob("*.parquet"))) == 1
    settle(objects)
    assert len(list(objects.rglob("*.parquet"))) == 1, "its intervals may still come"
    age(objects, 25 * 60)
    settle(objects)
    assert list(objects.rglob("*.parquet")) == []


def test_rows_whose_intervals_cannot_be_read_are_kept(
    rolled: RolledUp, old_hour: int, objects: Path
) -> None:
    """Else damage of one object would cost all that it names, a day later."""
    (intervals,) = objects.glob("tier=1h/table=interval/**/compacted-*")
    intervals.write_bytes(intervals.read_bytes()[:-12] + bytes(12))
    before = set(objects.glob("tier=1h/**/compacted-*"))
    adding.add(renamed(rolled, "db3", 3), BUCKET)
    for _ in range(2):
        age(objects, 25 * 60)
        told = compaction.compact(BUCKET).left_out
        assert any(intervals.name in one for one in told)
    assert len(before) > 5
    assert before <= set(objects.glob("tier=1h/**/compacted-*"))


def test_a_damaged_object_is_told_and_the_others_are_merged(
    rolled: RolledUp, objects: Path
) -> None:
    for number in (1, 2, 3):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    damaged = min(objects.glob("tier=1h/table=ledger/**/part-*"))
    damaged.write_bytes(damaged.read_bytes()[:-12] + bytes(12))
    told = compaction.compact(BUCKET).left_out
    assert [damaged.name in one for one in told] == [True]
    (merged,) = objects.glob("tier=1h/table=ledger/**/compacted-*")
    noted = parquet_files.footer_of(merged).metadata[copies.COPIES_KEY]
    assert len(noted.splitlines()) == 2


def test_an_hour_with_rows_that_do_not_count_is_looked_at_again(
    rolled: RolledUp, half: RolledUp, objects: Path
) -> None:
    """Its object is damaged: it can neither be merged nor told apart by its name."""
    for number, copy in ((1, half), (2, rolled)):
        adding.add(renamed(copy, f"db{number}", number), BUCKET)
    settle(objects)
    (stale,) = objects.glob("tier=1h/table=handshake/**/compacted-*")
    content = stale.read_bytes()
    stale.write_bytes(content[:4] + b"\xff" * 64 + content[68:])
    shutil.rmtree(mirror.root(BUCKET))  # whole copies
    adding.add(without(renamed(rolled, "db1", 1), columns.Handshake), BUCKET)
    settle(objects, 3)
    assert str(stale.relative_to(objects)) in stale_rows()
    assert open_hours().keys() == {"1h"}


def test_a_table_of_one_recording_is_merged_where_intervals_are(
    rolled: RolledUp, objects: Path
) -> None:
    adding.add(renamed(rolled, "db1", 1), BUCKET)
    adding.add(without(renamed(rolled, "db2", 2), Finding, Loss), BUCKET)
    before = totals(BUCKET)
    settle(objects)
    assert open_hours() == {}
    (found,) = objects.glob("tier=1h/table=finding/**/*.parquet")
    assert found.name.startswith("compacted-")
    assert totals(BUCKET) == before


@pytest.mark.parametrize("method", ["put", "remove"])
def test_a_run_that_dies_leaves_no_hour_that_looks_done(
    rolled: RolledUp, half: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    # db1's longer copy has no findings: what was merged of the shorter one has to go.
    for number, copy in ((1, half), (2, rolled)):
        adding.add(renamed(copy, f"db{number}", number), BUCKET)
    settle(objects)
    adding.add(without(renamed(rolled, "db1", 1), Finding, Loss), BUCKET)
    before = totals(BUCKET)
    real: Callable[..., Any] = getattr(Bucket, method)
    for survived in itertools.count(step=7):
        calls = itertools.count()

        def die_later(self: Bucket, *given: Any) -> None:
            if next(calls) >= survived:  # noqa: B023 - used in this round only
                raise KeyboardInterrupt
            real(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(Bucket, method, die_later)
            try:
                compaction.compact(BUCKET)
                break
            except KeyboardInterrupt:
                assert stale_rows() == [] or open_hours()
                assert totals(BUCKET) == before
        age(objects)
    settle(objects, 3)
    assert stale_rows() == []
    assert open_hours() == {}
    assert totals(BUCKET) == before

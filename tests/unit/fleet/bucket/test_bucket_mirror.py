# SPDX-License-Identifier: GPL-2.0-only
"""Local copies of objects: fetched once, for their owner only, removed when unused."""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.bucket import adding, compaction, mirror
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.tests.fleet_rows import renamed, totals

BUCKET = Bucket("fleet", "all")


def sums() -> dict[str, Any]:
    return totals(BUCKET)


def test_copies_here_are_used_again_and_trimmed(
    rolled: RolledUp, objects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding.add(rolled, BUCKET)
    before = sums()
    fetched: list[str] = []
    read = Bucket.read

    def count(self: Bucket, key: str) -> Iterator[bytes]:
        fetched.append(key)
        return read(self, key)

    monkeypatch.setattr(Bucket, "read", count)
    assert sums() == before
    assert fetched == []
    cached = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert cached
    assert {path.stat().st_mode & 0o777 for path in cached} == {0o600}
    mirror.trim(mirror.root(BUCKET).parent, most_bytes=0)
    assert all(path.exists() for path in cached)  # a question may read them now
    old = time.time() - 7200
    for path in cached:
        os.utime(path, (old, old))
    mirror.trim(mirror.root(BUCKET).parent, most_bytes=0)
    assert not any(path.exists() for path in cached)
    assert sums() == before
    assert len(fetched) == len(cached)


def test_an_object_that_goes_while_we_look_is_looked_for_again(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding.add(rolled, BUCKET)
    before = sums()
    gone = itertools.count()
    read = Bucket.read
    mirror.trim(mirror.root(BUCKET).parent)
    for path in mirror.root(BUCKET).rglob("*.parquet"):
        path.unlink()

    def vanish(self: Bucket, key: str) -> Iterator[bytes]:
        if next(gone) == 0:
            raise FileNotFoundError(key)
        return read(self, key)

    monkeypatch.setattr(Bucket, "read", vanish)
    assert sums() == before

    def always(self: Bucket, key: str) -> Iterator[bytes]:
        raise FileNotFoundError(key)

    monkeypatch.setattr(Bucket, "read", always)
    for path in mirror.root(BUCKET).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(TlstaxError, match="removed while they were read"):
        sums()


def fill(rolled: RolledUp, hosts: int = 2) -> None:
    for number in range(1, hosts + 1):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)


def test_what_cannot_be_read_of_intervals_is_told_to_questions_without_them(
    rolled: RolledUp, objects: Path
) -> None:
    fill(rolled)
    compaction.compact(BUCKET)
    for path in objects.glob("tier=1h/table=interval/**/part-*"):
        path.unlink()
    (hit,) = objects.glob("tier=1h/table=interval/**/compacted-*")
    hit.write_bytes(b"PAR1")
    found = mirror.select(BUCKET, "1h", [columns.Host, columns.Finding])
    assert found.files == {columns.Host: [], columns.Finding: []}
    assert found.left_out == [
        f"{BUCKET.url(str(hit.relative_to(objects)))} was not read: it is no whole Parquet file"
    ]


def test_who_only_compacts_fills_no_disk(rolled: RolledUp, objects: Path, tmp_path: Path) -> None:
    fill(rolled)
    old = mirror.root(BUCKET) / "old.parquet"
    old.parent.mkdir(parents=True)
    with old.open("wb") as stream:
        stream.truncate(mirror.CACHE_BYTES + 1)
    os.utime(old, (0, 0))
    compaction.compact(BUCKET)
    assert not old.exists()


def test_a_cache_that_cannot_be_used_is_told(
    rolled: RolledUp, objects: Path, tmp_path: Path, capsys: Any
) -> None:
    fill(rolled, 1)
    (tmp_path / "cache/tlstax").mkdir(parents=True)
    (tmp_path / "cache/tlstax/fleet").touch()
    assert main(["fleet", "top", "--data", str(BUCKET)]) == ExitCode.IO
    assert "cannot write to the cache" in capsys.readouterr().err


def test_objects_are_read_side_by_side(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each request waits for a second one: one after the other, they would wait for ever.
    both = threading.Barrier(2, timeout=20)
    read, footer = Bucket.read, Bucket.footer

    def read_beside(self: Bucket, key: str) -> Iterator[bytes]:
        both.wait()
        return read(self, key)

    def footer_beside(self: Bucket, key: str) -> Any:
        both.wait()
        return footer(self, key)

    fill(rolled)
    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "read", read_beside)
        assert compaction.compact(BUCKET).left_out == []
    for path in list(objects.glob("tier=1h/table=ledger/**/compacted-*.parquet")):
        twin = path.with_name(f"compacted-{'0' * 16}-{'0' * 16}.parquet")
        twin.write_bytes(path.read_bytes())
    monkeypatch.setattr(Bucket, "footer", footer_beside)
    ((held, *_),) = mirror.listed(BUCKET, "1h", columns.Ledger, []).values()
    assert len(held.copies) == 2


def test_footers_of_intervals_are_read_once(
    rolled: RolledUp, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rolled)
    compaction.compact(BUCKET)
    asked: list[str] = []
    footer = Bucket.footer

    def count(self: Bucket, key: str) -> Any:
        asked.append(key)
        return footer(self, key)

    monkeypatch.setattr(Bucket, "footer", count)
    mirror.select(BUCKET, "1h", [columns.Interval, columns.Ledger])
    assert len(asked) == len(set(asked)) == 2

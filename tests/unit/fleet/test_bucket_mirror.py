# SPDX-License-Identifier: GPL-2.0-only
"""Local copies of objects: fetched once, for their owner only, removed when unused."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax import TlstaxError
from tlstax.analysis.fleet.bucket import adding, mirror
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.tests.fleet_rows import totals

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

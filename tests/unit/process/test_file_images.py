# SPDX-License-Identifier: GPL-2.0-only
"""Fetched files of other hosts, which several recordings read and write at the same time."""

import os
from pathlib import Path

import pytest

from tlstax.collectors.process import file_images
from tlstax.collectors.process.file_images import keep_image, kept_image

BUILD_ID, YEAR_NS = "ab" * 20, 365 * 86400 * 10**9


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def put(build_id: str, content: bytes = b"image") -> Path:
    def write(to: int) -> None:
        os.write(to, content)

    return keep_image(build_id, write)


def test_an_image_that_another_recording_examined_stays_the_same_file() -> None:
    first = put(BUILD_ID)
    before = first.stat()
    assert kept_image(BUILD_ID) == first
    assert put(BUILD_ID, b"fetched again") == first
    after = first.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert first.read_bytes() == b"image"
    assert [path.name for path in first.parent.iterdir()] == [BUILD_ID]


def test_images_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_images, "IMAGES_MOST", 2)
    old, used = put("aa"), put("bb")
    for path in (old, used):
        os.utime(path, ns=(YEAR_NS, YEAR_NS))
    kept_image("bb")
    put("cc")
    assert sorted(path.name for path in used.parent.iterdir()) == ["bb", "cc"]


def test_a_file_that_goes_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    put("aa")
    listing = [*put("bb").parent.iterdir(), Path("/nonexistent/.cc.1")]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listing))
    assert put("dd").exists()

# SPDX-License-Identifier: GPL-2.0-only
"""Fetched files of other hosts, which several recordings read and write at the same time."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture.schema import Frame
from tlstax.collectors.process import file_images
from tlstax.collectors.process.file_images import file_of_build, keep_image, kept_image
from tlstax.collectors.process.later_names import LaterNames
from tlstax.collectors.process.live_names import open_names
from tlstax.tests.unit.process.examples import address_of

BUILD_ID, YEAR_NS = "ab" * 20, 365 * 86400 * 10**9


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def put(build_id: str, content: bytes = b"image") -> Path:
    def write(to: int) -> None:
        os.write(to, content)
        os.fsync(to)  # some file systems count its blocks then

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


def test_images_have_a_size_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that sends files of 4 GB fills no disk; what was made last stays."""
    monkeypatch.setattr(file_images, "IMAGES_BYTES_MOST", 100_000)
    for number, name in enumerate(("aa", "bb", "cc")):
        os.utime(put(name, bytes([1]) * 40_000), ns=(YEAR_NS + number, YEAR_NS))
    folder = put("dd", bytes([1]) * 40_000).parent
    assert sorted(path.name for path in folder.iterdir()) == ["cc", "dd"]
    put("ee", bytes([1]) * 400_000)
    assert [path.name for path in folder.iterdir()] == ["ee"]


def test_a_file_that_goes_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    put("aa")
    listing = [*put("bb").parent.iterdir(), Path("/nonexistent/.cc.1")]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listing))
    assert put("dd").exists()


@pytest.mark.parametrize("is_right", [True, False])
def test_names_are_found_in_images_of_that_build(
    compile_c: Callable[..., Path], is_right: bool
) -> None:
    """While a recording over ssh goes on, and after one that was killed."""
    path = compile_c("int named(int a) { return a * 3 + 1; } int main(void) { return named(1); }")
    address, _ = address_of(path, "named")
    with Elf(path) as elf:
        offset, build_id = elf.to_offset(address + 4), elf.build_id
    assert offset is not None
    content = path.read_bytes()
    path.unlink()
    put(build_id, content if is_right else content.replace(bytes.fromhex(build_id), bytes(20)))
    frame = Frame(1, str(path), build_id, offset, f"[program+{offset:#x}]", 0, "none", "")
    name = open_names(None)
    symbol = "named" if is_right else frame.symbol
    assert name(frame).symbol == symbol
    assert name(frame._replace(object="kernel", build_id="")).symbol == frame.symbol
    (found,) = LaterNames([], None, inlined=False).name([frame])
    assert [each.symbol for each in found.changed] == ([symbol] if is_right else [])


def test_a_path_of_another_host_opens_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"no ELF file")
    assert file_of_build(BUILD_ID, (str(other), "with\0nul", "")) == ("", (0, 0))


def test_what_a_stream_names_is_opened_only_if_it_is_a_regular_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device would do something as soon as it is opened, and a pipe would be waited for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"\x7fELF")
    opened: list[str] = []
    real = os.open

    def noted(path: str, flags: int, *rest: int, **named: Any) -> int:
        if not flags & os.O_PATH:
            opened.append(str(path))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", noted)
    assert file_of_build(BUILD_ID, (str(pipe), "/dev/zero", "pipe")) == ("", (0, 0))
    assert opened == []
    os.close(writer)


def test_a_file_that_is_too_large_is_not_read(
    compile_c: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile_c("int main(void) { return 0; }")
    with Elf(path) as elf:
        build_id = elf.build_id
    assert file_of_build(build_id, (str(path),))[0] == str(path)
    monkeypatch.setattr(file_images, "FILE_BYTES_MOST", path.stat().st_size - 1)
    assert file_of_build(build_id, (str(path),)) == ("", (0, 0))

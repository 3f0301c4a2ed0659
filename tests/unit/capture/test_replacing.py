# SPDX-License-Identifier: GPL-2.0-only
"""`--force`: an earlier capture is not lost before the new one is worth keeping."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Meta
from tlstax.collectors.capture.writer import CaptureWriter, write_whole

KEPT = "earlier"


def keys(path: Path) -> list[str]:
    with CaptureReader.open(path) as reader:
        return list(reader.meta())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A capture that was made earlier."""
    write_whole(tmp_path / "a.tlstax", [Meta(KEPT, "")])
    return tmp_path / "a.tlstax"


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def test_it_stays_until_the_new_one_takes_its_place(path: Path) -> None:
    with CaptureWriter.create(path, overwrite=True) as writer:
        writer.add(Meta("first", ""))
        writer.commit()
        assert keys(path) == [KEPT]
        writer.take_place()
        assert keys(path) == ["first"]
        writer.add(Meta("second", ""))
        writer.commit()
        assert keys(path) == ["first", "second"]
    assert names(path) == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_stays_when_the_new_one_is_discarded(path: Path) -> None:
    writer = CaptureWriter.create(path, overwrite=True)
    writer.add(Meta("new", ""))
    writer.discard()
    writer.close()
    assert keys(path) == [KEPT]
    assert names(path) == [path.name]


def test_a_reader_of_the_earlier_one_goes_on(path: Path) -> None:
    with CaptureReader.open(path) as reader:
        with CaptureWriter.create(path, overwrite=True) as writer:
            writer.take_place()
        assert list(reader.meta()) == [KEPT]


@pytest.mark.parametrize("is_placed", [False, True])
def test_two_writers_do_not_replace_each_other(path: Path, is_placed: bool) -> None:
    with CaptureWriter.create(path, overwrite=True) as writer:
        if is_placed:
            writer.take_place()
        with pytest.raises(TlstaxError, match="another recording writes it") as caught:
            CaptureWriter.create(path, overwrite=True)
        assert caught.value.exit_code == ExitCode.USAGE
        writer.add(Meta("new", ""))
    assert keys(path) == ["new"]
    write_whole(path, [Meta("later", "")], overwrite=True)  # the lock ends with the writer
    assert keys(path) == ["later"]


def test_a_new_capture_is_locked_as_well(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "a") as writer:
        with pytest.raises(TlstaxError, match="another recording writes it"):
            CaptureWriter.create(tmp_path / "a", overwrite=True)
        writer.add(Meta("new", ""))
    assert keys(tmp_path / "a") == ["new"]


def test_a_journal_that_was_left_does_not_damage_the_new_one(path: Path) -> None:
    """A recorder that was killed leaves a journal; SQLite would roll the new file back with it."""
    code = f"""
import os
from tlstax.collectors.capture.schema import Meta
from tlstax.collectors.capture.writer import CaptureWriter
writer = CaptureWriter.create({str(path)!r}, overwrite=True)
writer.take_place()
for number in range(20000):
    writer.add(Meta(f"key {{number}}", "x" * 400))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert f"{path.name}-journal" in names(path)
    write_whole(path, [Meta("new", "")], overwrite=True)
    assert keys(path) == ["new"]
    assert names(path) == [path.name]


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file of this process may become longer than a page."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_room_nothing_is_left_and_nothing_lost(path: Path, no_room: None) -> None:
    for overwrite, name in ((True, path), (False, path.with_name("b.tlstax"))):
        with pytest.raises(TlstaxError) as caught:
            CaptureWriter.create(name, overwrite=overwrite)
        assert caught.value.exit_code == ExitCode.IO
    assert keys(path) == [KEPT]
    assert names(path) == [path.name]

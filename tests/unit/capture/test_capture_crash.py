# SPDX-License-Identifier: GPL-2.0-only
"""A recorder that is killed, and one whose disk is full: finished windows stay readable."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import capture_file
from tlstax.collectors.capture import writer as writer_module
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Window
from tlstax.collectors.capture.writer import CaptureWriter

ROWS_PER_WINDOW = 3000
# Writes windows as fast as it can and says which are finished.
RECORDER = f"""
import os, sys
from tlstax.collectors.capture.schema import Ledger, Window
from tlstax.collectors.capture.writer import CaptureWriter
writer = CaptureWriter.create(sys.argv[1])
for number in range(1, 100000):
    writer.add(Window(number, None, number, number + 1))
    writer.add(Ledger(number, n, "command", "on_cpu", n) for n in range({ROWS_PER_WINDOW}))
    writer.commit()
    os.write(1, b"%d\\n" % number)
"""


def check_windows(path: Path, finished: int) -> None:
    """Every finished window is whole; at most the one being committed is there too."""
    with CaptureReader.open(path) as reader:
        windows = [row.window_id for row in reader.rows(Window)]
        rows = sum(1 for _ in reader.rows(Ledger))
    assert windows in (list(range(1, finished + 1)), list(range(1, finished + 2)))
    assert rows == len(windows) * ROWS_PER_WINDOW


@pytest.mark.parametrize("seed", range(20))
def test_a_killed_recorder_leaves_every_finished_window(
    tmp_path: Path, spawn: Callable[..., "subprocess.Popen[str]"], seed: int
) -> None:
    path = tmp_path / "a"
    command = [sys.executable, "-c", RECORDER, str(path)]
    process = spawn(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    finished = int((first + rest).split()[-1])
    left_over = sorted(tmp_path.iterdir())
    check_windows(path, finished)
    assert sorted(tmp_path.iterdir()) == left_over, "reading changed something"


def test_killed_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    """A hot journal, made for certain: the pages of a commit are written, the commit is not."""
    path = tmp_path / "a"
    child = os.fork()
    if child == 0:
        writer = CaptureWriter.create(path)
        writer.add([Window(1, None, 1, 2), *_ledger(1)])
        writer.commit()
        writer.add([Window(2, None, 2, 3), *(row for _ in range(30) for row in _ledger(2))])
        # A cache that spills writes the pages of the open transaction into the file.
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    journal = Path(f"{path}-journal")
    assert journal.stat().st_size > 0
    before = path.read_bytes(), journal.read_bytes()
    with CaptureReader.open(path) as reader:
        assert reader.recovered
        assert [row.window_id for row in reader.rows(Window)] == [1]
        assert len(list(reader.rows(Ledger))) == ROWS_PER_WINDOW
    assert (path.read_bytes(), journal.read_bytes()) == before


def test_a_commit_that_ends_during_the_look_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live recorder, at its worst moment: its journal goes between two looks of the reader."""
    path = tmp_path / "a"
    with CaptureWriter.create(path) as writer:
        writer.add([Window(1, None, 1, 2), *_ledger(1)])
        writer.commit()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096])

    def journal_of(capture: Path) -> Path:
        path.write_bytes(whole)
        return Path(f"{capture}-journal")

    monkeypatch.setattr("tlstax.collectors.capture.reader._journal_of", journal_of)
    with CaptureReader.open(path) as reader:
        assert [row.window_id for row in reader.rows(Window)] == [1]


def test_a_capture_that_is_removed_during_the_look_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    with CaptureWriter.create(path) as writer:
        writer.add([Window(1, None, 1, 2), *_ledger(1)])
        writer.commit()
    path.write_bytes(path.read_bytes()[:4096])

    def journal_of(capture: Path) -> Path:
        path.unlink()
        return Path(f"{capture}-journal")

    monkeypatch.setattr("tlstax.collectors.capture.reader._journal_of", journal_of)
    with pytest.raises(TlstaxError, match="No such file"):
        CaptureReader.open(path)


def _ledger(window_id: int) -> list[Ledger]:
    return [Ledger(window_id, n, "command", "on_cpu", n) for n in range(ROWS_PER_WINDOW)]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tlstax-test", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_a_full_disk_is_one_error_and_keeps_finished_windows(tiny_disk: Path) -> None:
    path = tiny_disk / "a"
    finished = 0

    def record() -> None:
        nonlocal finished
        with CaptureWriter.create(path) as writer:
            for number in range(1, 1000):
                writer.add(Window(number, None, number, number + 1))
                writer.add(_ledger(number))
                writer.commit()
                finished = number

    with pytest.raises(TlstaxError) as caught:
        record()
    assert caught.value.exit_code == ExitCode.IO
    assert "full" in caught.value.why
    assert "space" in caught.value.do
    assert finished > 0
    check_windows(path, finished)


@pytest.mark.root
def test_a_disk_without_any_room_is_one_error(tiny_disk: Path) -> None:
    with contextlib.suppress(OSError), (tiny_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    with pytest.raises(TlstaxError) as caught:
        CaptureWriter.create(tiny_disk / "a")
    assert caught.value.exit_code == ExitCode.IO


def test_ctrl_c_while_it_is_created_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer_module, "_prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        CaptureWriter.create(tmp_path / "a.tlstax")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("create", [CaptureWriter.create, capture_file.require_place])
def test_ctrl_c_just_after_the_file_is_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: Callable[[Path, bool], object]
) -> None:
    lock = capture_file._lock

    def interrupted(descriptor: int, path: Path) -> None:
        lock(descriptor, path)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(capture_file, "_lock", interrupted)
    # A suite that a shell started with & ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            create(tmp_path / "a.tlstax", False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []

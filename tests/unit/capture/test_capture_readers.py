# SPDX-License-Identifier: GPL-2.0-only
"""Another program reads the capture when the recording ends: nothing that was recorded is lost."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import TABLES, Ledger, Window
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.recording.plain import PlainRecording
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.tests.unit.capture.examples import example_row

Spawn = Callable[..., "subprocess.Popen[Any]"]
PATIENCE_S = 0.2
LONG_S = 60.0
WHILE_WAITING_S = 1.5  # longer than a step of the wait
ROWS = 1000
# Holds a read transaction until its input ends.
READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT * FROM window").fetchall()
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """A second connection that reads, until the block ends at the latest."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM window").fetchall()
        yield reader


def window(number: int) -> list[Window | Ledger]:
    """A window with its rows."""
    rows = [Ledger(number, n, "command", "on_cpu", n) for n in range(ROWS)]
    return [Window(number, None, number, number + 1), *rows]


def window_ids(path: Path) -> list[int]:
    """The windows, after a look that each has all of its rows."""
    with CaptureReader.open(path) as reader:
        found = [row.window_id for row in reader.rows(Window)]
        times_ns = [(row.window_id, row.time_ns) for row in reader.rows(Ledger)]
    assert times_ns == [(number, n) for number in found for n in range(ROWS)]
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tlstax"


@pytest.fixture
def writer(path: Path) -> Iterator[CaptureWriter]:
    """A capture with a window that was committed."""
    made = CaptureWriter.create(path)
    made.set_patience(PATIENCE_S)
    made.add(window(1))
    made.commit()
    yield made
    made.discard()


def test_a_reader_that_never_ends_costs_no_window(
    path: Path, writer: CaptureWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    with transaction(path) as reader:
        for number in (2, 3):
            writer.add(window(number))
            assert not writer.commit_if_free()
        writer.close()
        assert window_ids(path) == [1, 2, 3]
        assert reader.execute("SELECT window_id FROM window").fetchall() == [(1,)]
    assert window_ids(path) == [1, 2, 3]
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
    (line,) = capsys.readouterr().err.splitlines()
    assert f"still reads {path}: the whole capture was written to a new file of that name" in line


def test_the_copy_has_all_tables_and_later_rows(path: Path) -> None:
    writer = CaptureWriter.create(path)
    writer.set_patience(PATIENCE_S)
    with transaction(path):
        for number in range(3):
            writer.add(example_row(table, number) for table in TABLES)
        writer.commit()
        writer.add(Window(9, None, 1, 2))
    writer.close()
    with CaptureReader.open(path) as reader:
        assert [row.window_id for row in reader.rows(Window)][3:] == [9]
        for table in TABLES:
            assert list(reader.rows(table))[:3] == [example_row(table, n) for n in range(3)]


def test_a_reader_that_ends_within_the_wait_needs_no_copy(
    path: Path, writer: CaptureWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the wait is told, once."""
    writer.set_patience(LONG_S)
    before = path.stat().st_ino
    with transaction(path) as reader:
        writer.add(window(2))
        threading.Timer(WHILE_WAITING_S, reader.close).start()
        writer.close()
    assert window_ids(path) == [1, 2]
    assert path.stat().st_ino == before
    (line,) = capsys.readouterr().err.splitlines()
    assert "waiting until it ends, for at most 60 s, or until Ctrl-C; nothing is lost" in line


def test_ctrl_c_ends_the_wait_and_loses_nothing(
    path: Path, writer: CaptureWriter, spawn: Spawn
) -> None:
    writer.set_patience(LONG_S)
    writer.add(window(2))
    # A suite that a shell started with & ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with transaction(path):
            spawn(["sh", "-c", f"sleep {PATIENCE_S}; kill -INT {os.getpid()}"])
            with pytest.raises(KeyboardInterrupt):
                writer.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert window_ids(path) == [1, 2]


def test_the_reader_is_named(
    path: Path,
    writer: CaptureWriter,
    spawn: Spawn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-c", READER, str(path)]
    reader = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    reader.stdout.readline()
    writer.add(window(2))
    writer.close()
    assert window_ids(path) == [1, 2]
    assert f"tlstax: process {reader.pid} (python" in capsys.readouterr().err


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process may become longer than a few pages."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_room_for_a_copy_the_rows_wait_on(path: Path, writer: CaptureWriter) -> None:
    before = path.read_bytes()
    with transaction(path):
        writer.add(window(2))
        with no_room(), pytest.raises(TlstaxError, match="a copy beside it cannot be") as caught:
            writer.commit()
        assert caught.value.exit_code == ExitCode.IO
        assert path.read_bytes() == before
        assert not list(path.parent.glob("*.new*"))
    writer.close()  # the reader has ended
    assert window_ids(path) == [1, 2]


def test_another_file_of_that_name_is_not_replaced(path: Path, writer: CaptureWriter) -> None:
    """Somebody moved the capture away: the error says where the whole one is."""
    with transaction(path):
        writer.add(window(2))
        path.rename(path.with_name("moved"))
        path.write_text("a letter that somebody wrote")
        with pytest.raises(TlstaxError, match="the whole capture is") as caught:
            writer.close()
    (copy,) = path.parent.glob("*.new")
    assert str(copy) in caught.value.do
    assert window_ids(copy) == [1, 2]
    assert path.read_text() == "a letter that somebody wrote"


def test_a_recording_of_sources_goes_on_while_it_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tlstax.collectors.recording.plain.BUSY_SECONDS", PATIENCE_S)
    with ExitStack() as readers:
        with PlainRecording(os.getpid(), path, SourceSet([]), False) as recording:
            readers.enter_context(transaction(path))
            recording._writer.add(window(1))
            recording.poll(0)
            recording.poll(0)
        assert window_ids(path) == [1]

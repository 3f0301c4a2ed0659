# SPDX-License-Identifier: GPL-2.0-only
"""A lock that is waited for longer than a window, or at the edges of the recording: MariaDB."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tlstax.analysis.rows import tables
from tlstax.analysis.rows.edges import open_commands
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

TABLE = f"{DATABASE}.truth"
S = 1_000_000_000
LOCKED_S = 3.5
WHOLE = 2  # windows of 1 s that lie within any 3.5 s, at least
STATEMENTS = {
    "row": (
        ("BEGIN", f"UPDATE {TABLE} SET id = 1 WHERE id = 1"),
        f"SELECT id FROM {TABLE} WHERE id = 1 FOR UPDATE",
        "COMMIT",
    ),
    "table": ((f"LOCK TABLES {TABLE} WRITE",), f"SELECT id FROM {TABLE}", "UNLOCK TABLES"),
}
"""What takes a lock, waits for it, and frees it. MariaDB looks after a table lock each second."""
LOCKS = ("blocked_lock", "blocked_futex")


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        with running.open_administrator() as session:
            session.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY) ENGINE=InnoDB")
            session.query(f"INSERT INTO {TABLE} VALUES (1)")
        yield running


@contextmanager
def waiting(server: PrivateServer, kind: str, first: StatusSession) -> Iterator[Callable[[], None]]:
    """A session waits for a lock of the first one. Yields what ends the wait; safe to repeat."""
    lock, wait, unlock = STATEMENTS[kind]
    with server.open_administrator() as second:
        for statement in lock:
            first.query(statement)
        waiter = threading.Thread(target=second.query, args=[wait])
        waiter.start()
        time.sleep(0.2)

        def end() -> None:
            first.query(unlock)
            waiter.join()

        try:
            yield end
        finally:
            end()


def recorded(capture: Path) -> tuple[Tables, list[int]]:
    """The rows, and what unfinished commands lasted at least."""
    with CaptureReader.open(capture) as reader:
        rows = tables.load(reader)
    every = {window.window_id for window in rows.windows}
    found = rows.unfinished
    return rows, open_commands.lengths_ns(found, every)


def locked_ns(rows: Tables) -> Counter[int]:
    """Time of commands in waits for locks, by window."""
    found = Counter[int]()
    for row in rows.ledger:
        if row.phase == "command" and row.state in LOCKS:
            found[row.window_id] += row.time_ns
    return found


def test_a_wait_within_the_recording_has_its_stack_in_each_window(
    server: PrivateServer, tmp_path: Path
) -> None:
    with (
        server.open_administrator() as first,
        Recorder(Request(server.pid, tmp_path / "capture")) as recorder,
    ):
        recorder.poll(1.2)
        with waiting(server, "row", first):
            recorder.poll(LOCKED_S)
        recorder.poll(1.2)
    rows, unfinished = recorded(tmp_path / "capture")
    assert unfinished == []
    stacks = Counter[int]()
    for row in rows.waits:
        if row.phase == "command" and row.state in LOCKS and row.user_stack_id is not None:
            stacks[row.window_id] += row.time_ns
    whole = [number for number, ns in locked_ns(rows).items() if ns > 0.95 * S]
    assert len(whole) >= WHOLE
    assert all(stacks[number] > 0.9 * S for number in whole), (stacks, locked_ns(rows))


def test_a_wait_that_outlasts_the_recording_is_a_lower_bound(
    server: PrivateServer, tmp_path: Path
) -> None:
    with (
        server.open_administrator() as first,
        ExitStack() as lock,
        Recorder(Request(server.pid, tmp_path / "capture")) as recorder,
    ):
        recorder.poll(1.2)
        lock.enter_context(waiting(server, "row", first))
        recorder.poll(LOCKED_S)
    _, unfinished = recorded(tmp_path / "capture")
    assert len(unfinished) == 1
    assert WHOLE * 0.95 * S < unfinished[0] < (LOCKED_S + 1.5) * S


@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_wait_from_before_the_recording_is_in_a_command(
    server: PrivateServer, tmp_path: Path, kind: str
) -> None:
    with (
        server.open_administrator() as first,
        waiting(server, kind, first) as end,
        Recorder(Request(server.pid, tmp_path / "capture")) as recorder,
    ):
        recorder.poll(LOCKED_S)
        end()
        recorder.poll(0.5)
    rows, unfinished = recorded(tmp_path / "capture")
    assert sum(locked_ns(rows).values()) > 0.9 * LOCKED_S * S
    assert len(unfinished) == 1
    assert unfinished[0] > WHOLE * 0.95 * S

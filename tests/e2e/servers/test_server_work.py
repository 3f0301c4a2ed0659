# SPDX-License-Identifier: GPL-2.0-only
"""What servers do besides TLS: waits for locks and commits, and whose they are.

MySQL 5.6 and Debian's MariaDB by default; TLSTAX_SERVERS names others (make test-servers does).
"""

import os
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from tlstax.analysis.rows import ledger
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Loss, Thread, Window
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.status import StatusSession

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb mysql56").split()
HIDDEN_ENGINE: Final = ("mariadb", "mariadb118")  # Debian's MariaDB: no names of InnoDB
LOCKED_S, COMMITS_COUNT = 1.0, 100
PATIENCE_S: Final = 8.0  # less than that of the statement that waits
TABLE: Final = f"{DATABASE}.work"


def administrator(server: PrivateServer) -> StatusSession:
    """A connection that may do everything, in plaintext through the socket."""
    return StatusSession(Binaries.find().client, server.directory.client / "administrator.cnf")


def await_lock_wait(session: StatusSession) -> None:
    """Return once a transaction waits for a lock.

    By a counter: who asks INNODB_TRX more often than every 0.1 s is given the same answer for ever.
    """
    query = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
    deadline = time.monotonic() + PATIENCE_S
    while [row[1] for row in session.query(query)] != ["1"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def roles_of(path: Path) -> dict[str, ledger.Totals]:
    """The ledger by role; nothing may have been healed or missed."""
    with CaptureReader.open(path) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
        assert not losses & {"healed", "unmatched_exit", "phase_stack_overflow"}
        return ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows)


def together(recorder: Recorder, work: list[threading.Thread]) -> None:
    """Cut windows until all of the work is done."""
    for thread in work:
        thread.start()
    while any(thread.is_alive() for thread in work):
        recorder.poll(0.1)


@pytest.mark.parametrize("name", SERVERS)
def test_waits_are_called_by_what_is_waited_for(
    name: str, npm: None, lab_directory: Path, tmp_path: Path
) -> None:
    path = tmp_path / "capture"
    request = ServerRequest(options=("log_bin = binlog", "server_id = 1", "sync_binlog = 1"))
    with (
        open_server(find_kind(name), request) as server,
        administrator(server) as first,
        administrator(server) as second,
        administrator(server) as third,
    ):
        first.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
        first.query(f"INSERT INTO {TABLE} VALUES (1, 0), (2, 0)")
        first.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        with Recorder(Request(server.pid, path)) as recorder:
            first.query("BEGIN")
            first.query(f"UPDATE {TABLE} SET n = 1 WHERE id = 1")
            blocked = threading.Thread(
                target=second.query, args=(f"UPDATE {TABLE} SET n = 2 WHERE id = 1",)
            )
            blocked.start()
            await_lock_wait(third)
            recorder.poll(LOCKED_S)
            first.query("COMMIT")
            blocked.join()
            together(recorder, [commits(first, 1), commits(second, 2)])
            recorder.poll(0.1)

    roles = roles_of(path)
    waits = {state: roles["connection"].get(("command", f"blocked_{state}"), 0) for state in STATES}
    row_lock = "futex" if name in HIDDEN_ENGINE else "lock"
    assert waits[row_lock] >= 0.8 * LOCKED_S * 1e9, waits
    assert waits["disk"] > 0, waits
    if name not in HIDDEN_ENGINE:
        assert waits["futex"] < 0.2 * waits["disk"] + 0.05 * waits["lock"], waits
    assert EXPECTED[find_kind(name).family] <= roles.keys()
    # Cached connections are known; of the rest at most a few threads have no telling function.
    background_ns = sum(roles.get("background", {}).values())
    assert background_ns < 0.6 * sum(sum(sums.values()) for sums in roles.values())


STATES: Final = ("lock", "disk", "futex", "network")
EXPECTED: Final = {
    "mysql": {"acceptor", "connection", "signal_handler", "page_io", "purge", "engine_monitor"},
    "mariadb": {"acceptor", "connection", "signal_handler", "binlog", "engine_task"},
}


def commits(session: StatusSession, row: int) -> threading.Thread:
    """Many small transactions."""

    def run() -> None:
        for _ in range(COMMITS_COUNT):
            session.query(f"UPDATE {TABLE} SET n = n + 1 WHERE id = {row}")

    return threading.Thread(target=run)

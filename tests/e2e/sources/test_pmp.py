# SPDX-License-Identifier: GPL-2.0-only
"""pt-pmp on a live server: its pause is measured, and it finds a lock that saved stacks show."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.collectors.sources.pmp.snapshots import Snapshot, classify, take
from tlstax.collectors.sources.pmp.text import Stacks, parse
from tlstax.collectors.sources.stacks.stack_phases import StackPhases
from tlstax.probes.definitions import load_definitions
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.status import StatusSession

LEAST_PAUSE_NS = 10_000_000
PATIENCE_S = 60
LISTED = "SHOW PROCESSLIST"


@pytest.fixture
def server(lab_directory: Path) -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


def administrator(server: PrivateServer) -> StatusSession:
    return StatusSession(Binaries.find().client, server.directory.client / "administrator.cnf")


def threads(pid: int) -> set[int]:
    return {int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()}


def await_lock(session: StatusSession) -> None:
    """Until a statement of another session waits for the table, by the server's own word."""
    deadline = time.monotonic() + PATIENCE_S
    while not any("metadata lock" in word for row in session.query(LISTED) for word in row):
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.05)


def kinds(stacks: Stacks, phases: StackPhases) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for functions, count in stacks.items():
        found[classify(functions, phases)] += count
    return found


@pytest.mark.root
def test_a_held_lock_is_found_live_and_in_saved_stacks(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The statement that waits is answered when both tools are done.
    monkeypatch.setattr("tlstax.workloads.servers.status.ANSWER_PATIENCE_S", 300.0)
    phases = StackPhases(load_definitions())
    with administrator(server) as holder, administrator(server) as waiter:
        holder.query("CREATE DATABASE test")
        holder.query("CREATE TABLE test.held (a INT)")
        holder.query("LOCK TABLES test.held WRITE")
        blocked = threading.Thread(target=waiter.query, args=("SELECT COUNT(*) FROM test.held",))
        blocked.start()
        try:
            await_lock(holder)
            before = threads(server.pid)
            before_ns = time.monotonic_ns()
            live: Snapshot = take(server.pid, 1, 1, allow_pause=True)
            elapsed_ns = time.monotonic_ns() - before_ns
            between = threads(server.pid)
            printed = subprocess.run(
                ["eu-stack", "-m", "-p", str(server.pid)],
                capture_output=True, text=True, check=False,
            ).stdout  # fmt: skip
            after = threads(server.pid)
        finally:
            holder.query("UNLOCK TABLES")
            blocked.join()
        holder.query("DROP TABLE test.held")
    saved = parse(printed)
    assert kinds(live.stacks, phases)["lock", "command"] == 1
    assert kinds(saved, phases)["lock", "command"] == 1
    assert LEAST_PAUSE_NS < live.pause_ns < elapsed_ns
    # Every thread is in it once; the server starts and ends some of its own meanwhile.
    assert len(before & between) <= sum(live.stacks.values()) <= len(before | between)
    assert len(between & after) <= sum(saved.values()) <= len(between | after)

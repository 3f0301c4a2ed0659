# SPDX-License-Identifier: GPL-2.0-only
"""pt-pmp on a live server: its pause is measured, and it finds a lock that saved stacks show."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.collectors.pmp import Snapshot, classify, take
from tlstax.collectors.pmp_text import Stacks, parse
from tlstax.collectors.stack_phases import StackPhases
from tlstax.probes.definitions import load_definitions
from tlstax.workloads.servers.mariadb import Binaries, PrivateServer
from tlstax.workloads.servers.status import StatusSession

LEAST_PAUSE_NS = 10_000_000


@pytest.fixture
def server(lab_directory: Path) -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


def administrator(server: PrivateServer) -> StatusSession:
    return StatusSession(Binaries.find().client, server.places.client / "administrator.cnf")


def kinds(stacks: Stacks, phases: StackPhases) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for functions, count in stacks.items():
        found[classify(functions, phases)] += count
    return found


@pytest.mark.root
def test_a_held_lock_is_found_live_and_in_saved_stacks(server: PrivateServer) -> None:
    phases = StackPhases(load_definitions())
    with administrator(server) as holder, administrator(server) as waiter:
        holder.query("CREATE DATABASE test")
        holder.query("CREATE TABLE test.held (a INT)")
        holder.query("LOCK TABLES test.held WRITE")
        blocked = threading.Thread(target=waiter.query, args=("SELECT COUNT(*) FROM test.held",))
        blocked.start()
        try:
            time.sleep(0.5)
            before_ns = time.monotonic_ns()
            live: Snapshot = take(server.pid, 1, 1, allow_pause=True)
            elapsed_ns = time.monotonic_ns() - before_ns
            printed = subprocess.run(
                ["eu-stack", "-m", "-p", str(server.pid)],
                capture_output=True, text=True, check=False,
            ).stdout  # fmt: skip
        finally:
            holder.query("UNLOCK TABLES")
            blocked.join()
        holder.query("DROP TABLE test.held")
    saved = parse(printed)
    assert kinds(live.stacks, phases)["lock", "command"] == 1
    assert kinds(saved, phases)["lock", "command"] == 1
    assert LEAST_PAUSE_NS < live.pause_ns < elapsed_ns
    assert sum(live.stacks.values()) == sum(saved.values())

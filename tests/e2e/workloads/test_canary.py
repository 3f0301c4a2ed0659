# SPDX-License-Identifier: GPL-2.0-only
"""The canary at a real server under load: what it finds, what it costs, and what it refuses."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.tests.background_load import in_background
from tlstax.workloads.canary import Access, measure, summarize
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = pytest.mark.root

PASSWORD = "canary-of-the-test"
SECONDS = 8.0
RATE = 5.0
LOAD_MOST_S = 120


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        Sysbench.of_server(server, table_rows=1000).prepare()
        yield server


def access(server: PrivateServer, folder: Path, requirement: str) -> Access:
    """An account without any right but to connect."""
    with server.open_administrator() as session:
        for host in ("%", "localhost"):  # an anonymous account of localhost would be preferred
            session.query(f"CREATE OR REPLACE USER canary@'{host}' IDENTIFIED BY '{PASSWORD}'"
                          f" REQUIRE {requirement}")  # fmt: skip
    file = folder / "canary.cnf"
    file.touch(0o600)
    file.write_text(f"[client]\nuser = canary\npassword = {PASSWORD}\n")
    return Access(option_file=file, host="127.0.0.1", port=server.port)


def test_it_finds_what_tls_adds_under_load(server: PrivateServer, tmp_path: Path) -> None:
    canary = access(server, tmp_path, "NONE")
    driver = Sysbench.of_server(server, table_rows=1000)
    load = Load(SCENARIOS["point_select"], 1, LOAD_MOST_S)
    with server.open_administrator() as session, in_background(driver, load, "plaintext"):
        before = session.read()
        run = measure(canary, RATE, SECONDS)
        after = session.read()
    found = summarize(run)
    assert run.failure is None
    assert found.has_interval
    assert found.low_ns > 0, "a handshake takes milliseconds"
    assert 0 < found.busy_share <= 0.5, "it rests as long as it works"
    # Each arm also connects once at its start.
    assert after.since(before, "Ssl_finished_accepts") == found.count + 1
    assert after.since(before, "Aborted_connects") == 0


def test_a_server_that_stops_leaves_what_was_measured(tmp_path: Path) -> None:
    with PrivateServer() as dying:
        canary = access(dying, tmp_path, "NONE")
        rests = 0

        def rest(_: float) -> None:
            nonlocal rests
            rests += 1
            if rests == 3:
                os.kill(dying.pid, signal.SIGKILL)

        run = measure(canary, RATE, 60.0, rest)
    assert len(run.pairs) == 3
    assert run.failure is not None
    assert "the server runs" in str(run.failure)


def test_an_account_that_needs_tls_is_refused(server: PrivateServer, tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="cannot connect in plaintext"):
        measure(access(server, tmp_path, "SSL"), RATE, SECONDS)


def test_a_server_that_needs_tls_is_refused(server: PrivateServer, tmp_path: Path) -> None:
    canary = access(server, tmp_path, "NONE")
    with server.open_administrator() as session:
        session.query("SET GLOBAL require_secure_transport = ON")
        try:
            with pytest.raises(TlstaxError, match="cannot connect in plaintext"):
                measure(canary, RATE, SECONDS)
        finally:
            session.query("SET GLOBAL require_secure_transport = OFF")

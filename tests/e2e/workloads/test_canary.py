# SPDX-License-Identifier: GPL-2.0-only
"""The canary at a real server under load: what it finds, what it costs, and what it refuses."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.workloads.canary import Access, measure, summarize
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = pytest.mark.root

PASSWORD = "canary-of-the-test"
SECONDS = 8.0
RATE = 5.0


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
    load = threading.Thread(
        target=driver.run, args=(Load(SCENARIOS["point_select"], 1, int(SECONDS) + 2), "plaintext")
    )
    with server.open_administrator() as session:
        before = session.read()
        load.start()
        pairs = measure(canary, RATE, SECONDS)
        load.join()
        after = session.read()
    found = summarize(pairs, RATE)
    assert found.count >= 8
    assert found.difference_ns > 0
    assert found.low_ns <= found.difference_ns <= found.high_ns
    # Each arm also connects once at its start.
    assert after.since(before, "Ssl_finished_accepts") == len(pairs) + 1


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

# SPDX-License-Identifier: GPL-2.0-only
"""Triggers of `tlstax watch` on a real server: each fires at its own change of the clients.

A minute is 5 s here, and of the minutes before two are enough.
"""

import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.continuous.triggers import CLOSURE, OUTCOME, P99, TLS_CPU
from tlstax.tests.background_load import in_background
from tlstax.tests.e2e.recording.watch_runs import (
    THREADS,
    WatchRun,
    connect,
    copied_server,
    rows_of,
    server_of,
)
from tlstax.tests.safe_programs import safe_programs
from tlstax.tests.testprogs.waiting_client import Client
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SHORT = """
from tlstax.analysis.fleet.continuous import triggers
triggers.MINUTE_NS, triggers.RECENT, triggers.BEFORE, triggers.BEFORE_LEAST = 5 * 10**9, 1, 30, 2
triggers.CPU_LEAST_NS = 10**8
"""
MINUTE_S, CALM, CALM_COUNT = 5, 4, 150
SLOW_CLIENTS, SLOW_S, FAILURES = 35, 0.4, 6
MUTANT = "NO_ACCOUNT-1"
"""A ledger that has no account for every second new thread."""
NEW_THREADS = 12
"""More than the server keeps for later connections."""
LOAD_MOST_S = 120


def fired(watch: WatchRun) -> list[str]:
    return [name for name in (P99, OUTCOME, CLOSURE, TLS_CPU) if f"tlstax: {name}: " in watch.said]


def calm(server: PrivateServer, minutes: int) -> None:
    """Point selects, and some connections in each minute."""
    driver = Sysbench.of_server(server, table_rows=10)
    with in_background(driver, Load(SCENARIOS["point_select"], THREADS, minutes * MINUTE_S)):
        for _ in range(minutes):
            begun_s = time.monotonic()
            connect(server, CALM_COUNT)
            time.sleep(max(0.0, MINUTE_S - (time.monotonic() - begun_s)))


def slow(server: PrivateServer) -> None:
    """Clients that are far away."""
    _side_by_side(lambda: _client(server, ssl.CERT_NONE, SLOW_S), SLOW_CLIENTS, 2 * MINUTE_S)


def refusing(server: PrivateServer) -> None:
    """Clients that do not trust the server's certificate."""
    for _ in range(FAILURES):
        _client(server, ssl.CERT_REQUIRED, 0.0)
    time.sleep(2 * MINUTE_S)


def storm(server: PrivateServer) -> None:
    """Nothing but connections."""
    driver = Sysbench.of_server(server, table_rows=10)
    driver.run(Load(SCENARIOS["connect"], THREADS, 2 * MINUTE_S), "tls", time.sleep)


def _client(server: PrivateServer, verify: ssl.VerifyMode, wait_s: float) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = verify
    client = Client(context, ("127.0.0.1", server.port), wait_s)
    try:
        client.run()
    except ssl.SSLError:
        client._send(b"")  # the alert
        client._connection.close()


def _side_by_side(run: Callable[[], None], count: int, seconds: float) -> None:
    end_s = time.monotonic() + seconds

    def again() -> None:
        while time.monotonic() < end_s:
            with suppress(OSError, AssertionError):  # the server is full for a moment
                run()

    threads = [threading.Thread(target=again) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.timing
@pytest.mark.parametrize(
    ("change", "expected"), [(slow, P99), (refusing, OUTCOME), (storm, TLS_CPU)]
)
def test_a_change_of_the_clients_fires_its_trigger(
    change: Callable[[PrivateServer], None], expected: str, lab_directory: Path, tmp_path: Path
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    data = tmp_path / "data"
    with server_of(program) as server:
        watch = WatchRun(tmp_path / "said", data, "--pid", str(server.pid), changes=SHORT)
        watch.await_said("recording process")
        calm(server, CALM)
        assert fired(watch) == [], watch.said
        # A change that begins within a minute is a part of what was before the next one.
        time.sleep(MINUTE_S - time.time() % MINUTE_S)
        change(server)
        watch.await_said(f"tlstax: {expected}: ")
        assert watch.end() == 0, watch.said
    found = {row["finding"] for row in rows_of(data, columns.Finding)}
    assert expected in found
    assert list(data.glob("raw/db1/kept/*.tlstax"))
    program.unlink()


def test_a_ledger_that_lacks_threads_fires_its_trigger(
    lab_directory: Path, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    mutants = repository / "tests/truth/mutants/bin"
    kind = "-guarded" if safe_programs() else ""
    monkeypatch.setenv("TLSTAX_PROGRAMS", str(mutants / f"{MUTANT}{kind}.bpf.o"))
    other = f"""
from pathlib import Path
from tlstax.collectors.host import executable
executable.FOLDER = Path({str(mutants)!r})
"""
    with server_of(program) as server:
        data = tmp_path / "data"
        watch = WatchRun(tmp_path / "said", data, "--pid", str(server.pid), changes=SHORT + other)
        watch.await_said("recording process")
        driver = Sysbench.of_server(server, table_rows=10)
        with in_background(driver, Load(SCENARIOS["point_select"], NEW_THREADS, LOAD_MOST_S)):
            watch.await_said(f"tlstax: {CLOSURE}: The ledger has ", patience_s=LOAD_MOST_S)
        assert watch.end() == 0, watch.said
    program.unlink()

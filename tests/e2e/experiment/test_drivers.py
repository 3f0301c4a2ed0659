# SPDX-License-Identifier: GPL-2.0-only
"""Real sysbench against a real server: both arms do what they say, counted to the last one."""

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture.schema import Run, Status
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.matrix.cells import PlannedRun
from tlstax.workloads.matrix.proven_run import run_cell
from tlstax.workloads.matrix.recipe_file import load_recipe
from tlstax.workloads.matrix.server_session import ServerSession
from tlstax.workloads.matrix.store import Outcome
from tlstax.workloads.resources import Resources
from tlstax.workloads.results import ARMS, Arm, NullRecorder, RunTotals
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.tls import TlsChoice

THREADS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        Sysbench.of_server(running, table_rows=1000).prepare()
        yield running


@pytest.fixture(scope="module")
def driver(server: PrivateServer) -> Sysbench:
    return Sysbench.of_server(server, table_rows=1000)


@pytest.fixture
def status(server: PrivateServer) -> Iterator[StatusSession]:
    with server.open_status() as session:
        while session.read()["Threads_connected"] > 1:  # that of the last test is still ending
            time.sleep(0.01)
        yield session


def load(name: str, operation_count: int | None = None) -> Load:
    return Load(SCENARIOS[name], THREADS, seconds=1, operation_count=operation_count)


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("name", ["point_select", "read_only", "connect", "bulk_result"])
def test_connections_and_handshakes_are_exact(
    name: str, arm: Arm, driver: Sysbench, status: StatusSession
) -> None:
    before = status.read()
    result = driver.run(load(name), arm)
    time.sleep(0.2)  # the server may still be parting from the last client
    after = status.read()
    handshakes = result.connection_count if arm == "tls" else 0
    assert after.since(before, "Connections") == result.connection_count
    assert after.since(before, "Ssl_finished_accepts") == handshakes
    assert after.since(before, "Ssl_accepts") == handshakes
    if SCENARIOS[name].driver == "storm":
        assert result.connection_count == result.operation_count > THREADS
    else:
        assert result.connection_count == THREADS
    # Our own read before, and the counted queries; pooled drivers also prepare and close.
    assert after.since(before, "Questions") >= (result.query_count or 0) > 0
    latencies = result.latencies
    assert 0 < latencies.mean_ns <= latencies.max_ns
    assert latencies.p95_ns <= latencies.max_ns * 1.05  # sysbench's histogram has steps
    assert 0 < result.client_cpu_ns <= result.elapsed_ns * (os.cpu_count() or 1)
    assert 1e9 < result.elapsed_ns < 10e9


@pytest.mark.parametrize("arm", ARMS)
def test_a_storm_of_exactly_so_many_connects(
    arm: Arm, driver: Sysbench, status: StatusSession
) -> None:
    before = status.read()
    result = driver.run(load("connect", operation_count=123), arm)
    time.sleep(0.2)
    assert result.connection_count == result.operation_count == 123
    after = status.read()
    assert after.since(before, "Connections") == 123
    assert after.since(before, "Ssl_finished_accepts") == (123 if arm == "tls" else 0)


def test_nothing_secret_is_in_an_argument_list(server: PrivateServer, driver: Sysbench) -> None:
    texts = [path.read_text() for path in server.client_directory.glob("*.cnf")]
    secrets = {
        line.partition("=")[2].strip()
        for text in texts
        for line in text.splitlines()
        if line.startswith(("mysql-password", "password")) and line.partition("=")[2].strip()
    }
    assert len(secrets) == len(configuration.USERS) - 1  # USER_LOAD has no file of its own
    seen: set[str] = set()

    def look(seconds: float) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.add(path.read_text(errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue
        time.sleep(seconds)

    driver.run(load("connect"), "tls", look)
    assert any("tlstax_storm.lua" in text for text in seen)
    assert not [text for text in seen for secret in secrets if secret in text]


def test_a_stuck_driver_is_ended(driver: Sysbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tlstax.workloads.drivers.sysbench.GRACE_S", -29.5)
    with pytest.raises(TlstaxError, match="had not ended after") as caught:
        driver.run(Load(SCENARIOS["connect"], THREADS, seconds=30), "plaintext")
    assert caught.value.exit_code == ExitCode.FAILED
    assert "sysbench" not in _children()


def _children() -> str:
    command = ["ps", "-o", "args=", "--ppid", str(os.getpid())]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.replace(
        " ".join(command), ""
    )


def test_an_interrupt_ends_the_driver(driver: Sysbench) -> None:
    def interrupt(seconds: float) -> None:
        assert "sysbench" in _children()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.run(load("connect"), "plaintext", interrupt)
    assert "sysbench" not in _children()


def test_a_driver_that_cannot_connect_says_so(server: PrivateServer, driver: Sysbench) -> None:
    options = server.option_file(configuration.USER_PLAINTEXT)
    text = options.read_text()
    try:
        options.write_text(text.replace("mysql-password=", "mysql-password=x"))
        with pytest.raises(TlstaxError, match="Access denied"):
            driver.run(load("connect"), "plaintext")
    finally:
        options.write_text(text)


RECIPE = """
kind = "tax"
[matrix]
servers = ["host"]
scenarios = ["connect"]
threads = [2]
[driver.sysbench]
table_rows = 10
[scale.smoke]
operations = 50
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerSession]:
    path = tmp_path_factory.mktemp("recipe") / "connect.toml"
    path.write_text(RECIPE)
    recipe = load_recipe(path)
    with Resources() as resources:
        key = recipe.cells[0].server_key
        made = ServerSession(key, recipe, recipe.cells, resources, print, negotiates=False)
        made.open()
        yield made
        made.close()


class CountingRecorder(NullRecorder):
    """Stands where the probes would, to test what an experiment does with a recorder's word."""

    def __init__(self, handshakes: int = 0, version: str = "TLSv1.3") -> None:
        super().__init__()
        self.calls: list[str] = []
        self.rows: list[Run | Status] = []
        self._handshakes, self._version = handshakes, version

    def begin_run(self, run_id: int) -> None:
        self.calls.append(f"begin {run_id}")
        super().begin_run(run_id)

    def end_run(self) -> RunTotals:
        self.calls.append("end")
        in_tls = self.calls[-2] == "begin 2"
        count = self._handshakes if in_tls else 0
        totals = super().end_run()
        return dataclasses.replace(
            totals, handshake_count=count, tls_versions={self._version: count} if count else {}
        )

    def add(self, rows: Iterable[Run | Status]) -> None:
        self.rows += rows


def run_both(session: ServerSession, recorder: NullRecorder) -> list[Outcome]:
    """One run of each arm; that with TLS is run 2."""
    return [
        run_cell(session, cell, PlannedRun(number, number, 0, 0), recorder)
        for number, cell in enumerate(session.cells, start=1)
    ]


def test_a_run_is_proven_and_handed_over(session: ServerSession) -> None:
    assert session.counts_handshakes
    recorder = CountingRecorder(handshakes=50)
    first, second = (outcome.row for outcome in run_both(session, recorder))
    assert recorder.calls == ["begin 1", "end", "begin 2", "end"]
    assert [(run.driver, run.arm, run.round, run.connection_count) for run in (first, second)] == [
        ("storm", "plaintext", 0, 50),
        ("storm", "tls", 0, 50),
    ]
    assert first.start_ns < first.end_ns <= second.start_ns < second.end_ns
    assert json.loads(second.proof)["server_handshakes"] == 50
    assert [row for row in recorder.rows if isinstance(row, Run)] == [first, second]
    finished = [
        int(row.value)
        for row in recorder.rows
        if isinstance(row, Status) and row.name == "Ssl_finished_accepts"
    ]
    (before_first, after_first, before_second, after_second) = finished
    assert (after_first - before_first, after_second - before_second) == (0, 50)


def test_a_run_fails_when_the_probes_missed_a_handshake(session: ServerSession) -> None:
    with pytest.raises(TlstaxError, match="recorder_handshakes is 49, not 50") as caught:
        run_both(session, CountingRecorder(handshakes=49))
    assert caught.value.exit_code == ExitCode.FAILED


def test_a_run_fails_when_somebody_else_connects(session: ServerSession) -> None:
    class Intruder(NullRecorder):
        def begin_run(self, run_id: int) -> None:
            super().begin_run(run_id)
            session.server.open_status().close()

    with pytest.raises(TlstaxError, match="server_connections is 51, not 50"):
        run_both(session, Intruder())


def test_a_run_fails_when_a_connection_stays_open(
    session: ServerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tlstax.workloads.servers.connections.PATIENCE_S", 0.3)
    with (
        session.server.open_status(),
        pytest.raises(TlstaxError, match="connections stayed open after a run"),
    ):
        run_both(session, NullRecorder())


def test_an_arm_that_falls_back_to_tls_is_caught(
    session: ServerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The trap itself: sysbench reads this line of an option file as a switch that is on.
    def trap(*arguments: Any, **named: Any) -> str:
        return configuration.sysbench_options(*arguments, **named) + "mysql-ssl=off\n"

    monkeypatch.setattr("tlstax.workloads.drivers.sysbench.sysbench_options", trap)
    with pytest.raises(TlstaxError, match="server_handshakes is 50, not 0"):
        run_both(session, NullRecorder())


CHOICES = [
    TlsChoice("TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256", "prime256v1"),
    TlsChoice("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256", "X25519"),
]


@pytest.mark.parametrize("choice", CHOICES)
def test_sysbench_makes_the_tls_choice(choice: TlsChoice) -> None:
    with PrivateServer(ServerRequest(tls=choice)) as server:
        driver = Sysbench.of_server(server, table_rows=10)
        require_cipher(server, str(choice.cipher))
        assert driver.run(load("connect", 20), "tls").connection_count == 20
        require_cipher(server, "ECDHE-RSA-AES256-GCM-SHA384")
        with pytest.raises(TlstaxError, match="Access denied"):
            driver.run(load("connect", 20), "tls")


def require_cipher(server: PrivateServer, cipher: str) -> None:
    """Have the server itself refuse whoever comes with another cipher."""
    user = f"{configuration.USER_TLS}@'127.0.0.1'"
    subprocess.run(
        ["mariadb", f"--defaults-file={server.client_directory}/administrator.cnf"],
        input=f"ALTER USER {user} REQUIRE CIPHER '{cipher}'",
        text=True,
        check=True,
    )


def test_the_unwatched_demo_needs_no_probes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["lab", "demo", "--unwatched", "--rounds", "1", "--seconds", "1"]
    assert main(arguments) == ExitCode.OK
    printed = capsys.readouterr().out
    assert printed.count("operations") == 6
    assert "6/6 runs" in printed


def test_missing_sysbench_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="apt-get install sysbench") as caught:
        find_program("sysbench", "sysbench", str(tmp_path))
    assert caught.value.exit_code == ExitCode.HOST

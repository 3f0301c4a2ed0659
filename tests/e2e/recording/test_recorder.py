# SPDX-License-Identifier: GPL-2.0-only
"""A real server through the static recorder: plan file, stream, import, report."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Handshake, Ledger, Loss, Thread, Window
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SECONDS, CONNECTIONS, TABLE_ROWS = 4, 3, 1000


@pytest.fixture
def capture(measured: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Connections that come, select for some seconds, and go; recorded without Python."""
    return measured("capture", lambda: record(tmp_path_factory.mktemp("recorder")))


def record(folder: Path) -> Path:
    plan, program, stream = folder / "server.plan", folder / "recorder", folder / "x.stream"
    capture = folder / "server.tlstax"
    command = [sys.executable, "-m", "tlstax"]
    assert main(["recorder", "--output", str(program)]) == 0
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        # A process of its own: the planner forks, which is refused once there are threads.
        subprocess.run(
            [*command, "probes", "plan", str(server.pid), "--output", plan], check=True, timeout=120
        )
        with (
            stream.open("wb") as out,
            subprocess.Popen(
                [program, "--plan", plan, "--pid", str(server.pid), "--window", "500ms"],
                stdout=out,
                stderr=subprocess.PIPE,
            ) as recorder,
        ):
            assert recorder.stderr is not None
            assert b"attached to" in recorder.stderr.readline()
            try:
                driver.run(Load(SCENARIOS["point_select"], CONNECTIONS, SECONDS), "tls")
            finally:
                recorder.terminate()
            said = recorder.stderr.read()
            assert recorder.wait(60) == 0, said
        subprocess.run([*command, "import", stream, "--output", capture], check=True, timeout=120)
    return capture


def test_the_handshakes_are_those_of_the_load(capture: Path) -> None:
    with CaptureReader.open(capture) as reader:
        handshakes = list(reader.rows(Handshake))
    assert [row.outcome for row in handshakes] == ["success"] * len(handshakes)
    assert len(handshakes) >= CONNECTIONS
    assert {row.side for row in handshakes} == {"server"}
    assert {row.tls_version for row in handshakes} == {"TLSv1.3"}


def test_commands_have_the_time_of_the_connections(capture: Path) -> None:
    with CaptureReader.open(capture) as reader:
        windows = list(reader.rows(Window))
        busy = {row.thread_id for row in reader.rows(Thread) if row.role == "connection"}
        phases = {row.phase for row in reader.rows(Ledger) if row.thread_id in busy}
        spent_ns = sum(row.time_ns for row in reader.rows(Ledger) if row.thread_id in busy)
        lost = {row.kind for row in reader.rows(Loss)}
    assert {"command", "record_read", "record_write", "idle"} <= phases
    assert windows[-1].end_ns - windows[0].start_ns > SECONDS * 1_000_000_000
    assert spent_ns > 0.9 * CONNECTIONS * SECONDS * 1_000_000_000
    assert not lost & {"thread_slots_full", "handshake_ring_full", "sample_map_full"}


def test_functions_have_names(capture: Path) -> None:
    with CaptureReader.open(capture) as reader:
        frames = list(reader.rows(Frame))
    named = {row.symbol for row in frames if row.symbol[:1] not in ("[", "")}
    assert any("SSL_" in name or "ssl3_" in name or "EVP_" in name for name in named)
    assert any(row.object == "kernel" and row.source == "kallsyms" for row in frames)


def test_a_report_is_made_of_it(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(capture)]) == 0
    text = capsys.readouterr().out
    assert "TLSv1.3" in text
    assert "handshake" in text

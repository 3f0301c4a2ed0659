# SPDX-License-Identifier: GPL-2.0-only
"""Several sources in one capture on one clock; one that dies is named, and no secret leaks."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.processes import children_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.status import StatusSession

STORM, SELECT = SCENARIOS["connect"], SCENARIOS["point_select"]
PATIENCE_S = 60.0
Process = subprocess.Popen[str]
Attach = Callable[..., Process]


@pytest.fixture
def server(lab_directory: Path) -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


@pytest.fixture
def canary(server: PrivateServer, tmp_path: Path) -> tuple[Path, str]:
    """An option file of a read-only account, and its password."""
    password = secrets.token_hex(16)
    file = server.directory.client / "administrator.cnf"
    socket = next(line for line in file.read_text().splitlines() if line.startswith("socket"))
    with StatusSession(Binaries.find().client, file) as administrator:
        administrator.query(f"CREATE USER watcher@localhost IDENTIFIED BY '{password}'")
        administrator.query("GRANT PROCESS ON *.* TO watcher@localhost")
    options = tmp_path / "status.cnf"
    options.touch(0o600)
    options.write_text(f"[client]\nuser=watcher\npassword={password}\n{socket}\n")
    return options, password


@pytest.fixture
def attach(server: PrivateServer, spawn: Callable[..., Process]) -> Attach:
    """A function that starts a recording with these sources, and returns when it is attached."""

    def run(capture: Path, names: str, *more: str) -> Process:
        command = [
            sys.executable,
            "-m",
            "tlstax",
            "attach",
            str(server.pid),
            "--quiet",
            "--accept",
            "return-probes",
        ]
        process = spawn(
            [*command, "-o", str(capture), "--collect", names, *more],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        while "attached" not in (line := process.stderr.readline()):
            assert line, "it ended before it was attached"
        return process

    return run


def seen_by_others(process: "subprocess.Popen[str]") -> bytes:
    """Arguments and environments of tlstax and everything that it started."""
    pids = [process.pid]
    for pid in pids:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        pids += map(int, children.read_text().split()) if children.exists() else []
    texts = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "environ")]
    return b"".join(path.read_bytes() for path in texts if path.exists())


def accepts_in(capture: Path) -> list[int]:
    """Handshakes that the server had counted, each time it was asked."""
    with CaptureReader.open(capture) as reader:
        rows = [row for row in reader.rows(schema.Status) if row.name == "Ssl_finished_accepts"]
    return [int(row.value) for row in rows]


def await_accepts(capture: Path, least: int) -> None:
    """Return once a capture that is being made has so many."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := accepts_in(capture)) or found[-1] - found[0] < least:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def collectors(capture: Path) -> dict[str, schema.Collector]:
    with CaptureReader.open(capture) as reader:
        return {row.name: row for row in reader.rows(schema.Collector)}


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_six_sources_fill_one_capture(
    server: PrivateServer, attach: Attach, canary: tuple[Path, str], tmp_path: Path
) -> None:
    options, password = canary
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    capture = tmp_path / "x.tlstax"
    names = "native,procfs,iostat,status,perf,bpftrace"
    more = ["--status-file", str(options), "--bpftrace-programs", "handshake"]
    more += ["--stacks", "frame-pointers"]  # whose stacks perf's repair
    process = attach(capture, names, *more)
    seen = seen_by_others(process)
    driver.run(Load(STORM, 2, 0, 100), "tls", time.sleep)
    driver.run(Load(SELECT, 2, 2), "tls", time.sleep)
    await_accepts(capture, 100)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 0, said
    found = collectors(capture)
    assert {name: row.state for name, row in found.items()} == dict.fromkeys(
        ("procfs", "iostat", "status", "perf", "bpftrace"), "finished"
    )
    assert all(row.rows_count for row in found.values())
    accepts = accepts_in(capture)
    with CaptureReader.open(capture) as reader:
        windows = list(reader.rows(schema.Window))
        start = min(row.start_ns for row in windows if row.engine == "native")
        end = max(row.end_ns for row in windows)
        times = [row.time_ns for row in reader.rows(schema.Metric)]
        perf_ids = {row.window_id for row in windows if row.engine == "perf"}
        samples = list(reader.rows(schema.SampleStack))
        by_bpftrace = {row.window_id for row in windows if row.engine == "bpftrace"}
        shakes = [row.window_id in by_bpftrace for row in reader.rows(schema.Handshake)]
    assert start <= min(times) <= max(times) <= end
    assert accepts[-1] - accepts[0] >= 100
    # The engine alone sees status's own connection, which was there before bpftrace.
    assert shakes.count(True) >= 100
    assert 0 <= shakes.count(False) - shakes.count(True) <= 1
    phases = {row.phase for row in samples if row.window_id in perf_ids}
    assert {"command", "record_read", "record_write"} <= phases
    assert phases & {"handshake", "sign", "verify"}  # though none of it has a name of its own
    with CaptureReader.open(capture) as reader:
        document = explain.explain(tables.load(reader))
    (graph,) = (one for one in document.flames if one.kind == "on_cpu")
    assert 0 < graph.repaired_count <= graph.broken_count < graph.sample_count
    assert document.sources is not None
    series = {panel.name for panel in document.sources.panels if panel.lines}
    assert {"procfs/cpu", "status/tls_handshakes", "status/statements"} <= series
    for text in (seen, capture.read_bytes(), said.encode()):
        assert password.encode() not in text


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_a_source_that_is_killed_is_named_and_the_rest_is_kept(
    server: PrivateServer, attach: Attach, tmp_path: Path
) -> None:
    capture = tmp_path / "x.tlstax"
    process = attach(capture, "native,procfs,iostat,perf", "--for", "5s")
    for pid, name in children_of(process.pid).items():
        if name in ("iostat", "perf"):
            os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.FAILED
    assert "2 of the sources failed" in said
    assert "Traceback" not in said
    found = collectors(capture)
    states = {name: row.state for name, row in found.items()}
    assert states == {"procfs": "finished", "iostat": "failed", "perf": "failed"}
    assert "by SIGKILL" in found["perf"].note
    assert "perf: it ended before the recording did: by SIGKILL" in said
    with CaptureReader.open(capture) as reader:
        assert len([row for row in reader.rows(schema.Window) if row.engine == "native"]) >= 3
        document = explain.explain(tables.load(reader))
    assert any(found["perf"].note in text for text in document.health.warnings)
    assert list(tmp_path.iterdir()) == [capture]


@pytest.mark.root
def test_without_the_native_engine(server: PrivateServer, attach: Attach, tmp_path: Path) -> None:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    capture = tmp_path / "x.tlstax"
    process = attach(capture, "perf,procfs", "--sample-hz", "499")
    driver.run(Load(SELECT, 2, 2), "tls", time.sleep)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    with CaptureReader.open(capture) as reader:
        assert {row.engine for row in reader.rows(schema.Window)} == {"perf"}
        assert sum(row.sample_count for row in reader.rows(schema.SampleStack)) > 50

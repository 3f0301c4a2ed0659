# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace programs on a private MariaDB: the driver, tlstax's engine and bpftrace count alike."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.syscalls import syscall_name
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes", "btf")]

STORM, SELECT = SCENARIOS["connect"], SCENARIOS["point_select"]
HANDSHAKES_COUNT = 60
TOOLS = ["bpftrace", *os.environ.get("TLSTAX_BPFTRACE", "").split()]
PATIENCE_S = 200  # for what takes 10 s on a machine that has nothing else to do
Process = subprocess.Popen[str]
TLSTAX = [sys.executable, "-m", "tlstax", "probes"]
ACCEPTED = ("--accept", "return-probes")


@pytest.fixture
def server(lab_directory: Path) -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


@pytest.fixture
def start(server: PrivateServer, spawn: Callable[..., Process]) -> Callable[..., Process]:
    """A function that runs a program, and returns when it is attached."""

    def run(name: str, capture: Path, tool: str = "bpftrace") -> Process:
        command = [
            *TLSTAX,
            "run",
            name,
            "--pid",
            server.pid,
            "--for",
            "30m",
            "-o",
            capture,
            "--accept",
            "return-probes",
        ]
        process = spawn(
            [*map(str, command), "--bpftrace", tool],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "attached" in line, line + process.stderr.read()
        return process

    return run


def finish(process: Process) -> str:
    """End it as Ctrl-C does: nothing that it counted is lost."""
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.OK, errors
    return said


@dataclass(frozen=True)
class Storm:
    """A storm of connections, recorded by bpftrace and by the engine at the same time."""

    theirs: Path
    own: Path
    said: str

    def handshakes(self) -> tuple[list[schema.Handshake], list[schema.Handshake]]:
        """Successful ones, bpftrace's and the engine's."""
        found = []
        for path in (self.theirs, self.own):
            with CaptureReader.open(path) as reader:
                rows = reader.rows(schema.Handshake)
                found.append([row for row in rows if row.outcome == "success"])
        theirs, own = found
        return theirs, own


@pytest.fixture(params=TOOLS)
def storm(request: pytest.FixtureRequest, measured: Callable[..., Storm], tmp_path: Path) -> Storm:
    def measure() -> Storm:
        server, start = (request.getfixturevalue(name) for name in ("server", "start"))
        return record_a_storm(server, start, tmp_path, request.param)

    return measured(request.param, measure)


def record_a_storm(
    server: PrivateServer, start: Callable[..., Process], tmp_path: Path, tool: str
) -> Storm:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    theirs, own = tmp_path / "bpftrace.tlstax", tmp_path / "native.tlstax"
    process = start("handshake", theirs, tool)
    with Recorder(Request(server.pid, own)) as recorder:
        recorder.poll(0)
        driver.run(Load(STORM, 2, 0, HANDSHAKES_COUNT), "tls", time.sleep)
        recorder.poll(0.2)
    return Storm(theirs, own, finish(process))


def test_handshakes_are_those_of_the_driver_and_of_the_engine(storm: Storm) -> None:
    assert "lost events: 0; unmatched: 0" in storm.said
    rows, native = storm.handshakes()
    with CaptureReader.open(storm.theirs) as reader:
        counts = [row.ended_count for row in reader.rows(schema.PhaseCount)]
        assert {row.engine for row in reader.rows(schema.Window)} == {"bpftrace"}
        assert sum(row.ended_count for row in reader.rows(schema.Latency)) == len(rows)
    assert len(rows) == len(native) >= HANDSHAKES_COUNT
    assert counts == [len(rows)]


@pytest.mark.timing
def test_handshakes_take_as_long_as_by_the_engine(storm: Storm) -> None:
    theirs_mean, mean = (
        sum(row.end_ns - row.start_ns for row in found) / len(found) for found in storm.handshakes()
    )
    assert theirs_mean == pytest.approx(mean, rel=0.05)


def test_records_and_commands_add_up(
    server: PrivateServer, start: Callable[..., Process], tmp_path: Path
) -> None:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    for name in ("record", "command"):
        capture = tmp_path / f"{name}.tlstax"
        process = start(name, capture)
        driver.run(Load(SELECT, 1, 0, 500), "tls", time.sleep)
        assert "lost events: 0; unmatched: 0" in finish(process)
        with CaptureReader.open(capture) as reader:
            counts = {row.phase: row.ended_count for row in reader.rows(schema.PhaseCount)}
        if name == "record":
            assert counts["record_write"] >= 500
            assert counts["record_read"] >= counts["record_write"]
        else:
            assert 500 <= counts["command"] <= 600


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", ["oncpu", "offcpu"])
def test_stacks_carry_phases(
    server: PrivateServer, start: Callable[..., Process], tmp_path: Path, name: str, tool: str
) -> None:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    capture = tmp_path / "x.tlstax"
    process = start(name, capture, tool)
    driver.run(Load(SELECT, 2, 5), "tls", time.sleep)
    finish(process)
    with CaptureReader.open(capture) as reader:
        on_cpu = list(reader.rows(schema.SampleStack))
        samples = [(row.phase, row.user_stack_id) for row in on_cpu]
        waits = [(row.phase, row.user_stack_id) for row in reader.rows(schema.OffcpuStack)]
        stacks = {row.stack_id for row in reader.rows(schema.Stack)}
    rows = samples if name == "oncpu" else waits
    assert {"command", "record_read"} <= {phase for phase, _ in rows}
    assert set[int | None]() < {stack for _, stack in rows} - {None} <= stacks
    if name == "oncpu":
        calls = {syscall_name(row.syscall) for row in on_cpu if row.kernel_stack_id}
        assert calls & {"read", "recvfrom", "write", "sendto", "poll", "ppoll"}


def test_a_run_ends_by_itself(server: PrivateServer) -> None:
    done = subprocess.run(
        [*TLSTAX, "run", "command", "--pid", str(server.pid), "--for", "1s", *ACCEPTED],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout.startswith("command: ")


def test_as_a_source_without_the_engine(
    server: PrivateServer, spawn: Callable[..., Process], tmp_path: Path
) -> None:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    capture, picture = tmp_path / "x.tlstax", tmp_path / "x.svg"
    process = spawn(
        [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet", *ACCEPTED,
         "-o", str(capture), "--collect", "bpftrace,procfs",
         "--bpftrace-programs", "handshake,offcpu"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "attached" not in (line := process.stderr.readline()):
        assert line
    driver.run(Load(STORM, 2, 0, HANDSHAKES_COUNT), "tls", time.sleep)
    finish(process)
    with CaptureReader.open(capture) as reader:
        (window,) = reader.rows(schema.Window)
        rows = list(reader.rows(schema.Handshake))
        waits = [row for row in reader.rows(schema.OffcpuStack) if row.phase == "handshake"]
    assert (window.engine, window.level) == ("bpftrace", "handshake")
    assert len(rows) >= HANDSHAKES_COUNT
    assert sum(row.time_ns for row in waits) > 0
    for phase in ([], ["--phase", "handshake"]):
        command = ["flamegraph", str(capture), "--kind", "off-cpu", *phase, "-o", str(picture)]
        assert main(command) == ExitCode.OK
        text = picture.read_text()
        assert ">blocked_network" in text
        assert "by the ledger" not in text


def test_what_is_printed_runs_by_itself(server: PrivateServer) -> None:
    command = [*TLSTAX, "print", "command", "--pid", str(server.pid)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"/pid == {server.pid}/" in text
    assert "$1" not in text
    done = subprocess.run(
        ["bpftrace", "-d", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["handshake", "--pid", "999999999"], "there is no such process", ExitCode.TARGET),
        (["nothing", "--pid", "1"], "there is no program called", ExitCode.USAGE),
        (["handshake", "--pid", "1", "--bpftrace", "/bin/true"], "no known version", ExitCode.HOST),
        (["handshake", "--pid", "1", "--bpftrace", "/nowhere"], "not found", ExitCode.HOST),
    ],
)
def test_one_clear_error(arguments: list[str], said: str, code: ExitCode) -> None:
    done = subprocess.run(
        [*TLSTAX, "run", *arguments],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_without_the_function(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as sleeper:
        done = subprocess.run(
            [*TLSTAX, "print", "handshake", "--pid", str(sleeper.pid)],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        sleeper.kill()
    assert done.returncode == ExitCode.TARGET
    assert "handshake" in done.stderr
    assert "action:handshake_call" in done.stderr


def test_output_that_nobody_understands(server: PrivateServer, tmp_path: Path) -> None:
    fake = tmp_path / "bpftrace"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bpftrace v0.99.0 && exit\n'
        '[ "$1" = --info ] && echo bfd: no && exit\necho gibberish\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        [*TLSTAX, "run", "command", "--pid", str(server.pid), "--bpftrace", str(fake), *ACCEPTED],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == ExitCode.FAILED
    assert "gibberish" in done.stderr
    assert "Traceback" not in done.stderr

# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach` of several servers: one recorder, a capture for each; none costs another one."""

import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.recording.by_recorder.ready_server import make_ready
from tlstax.collectors.recording.by_recorder.several import SeveralServers
from tlstax.collectors.recording.request import Request
from tlstax.tests import least_budget
from tlstax.tests.kernel.recorder_runs import (
    IO,
    OK,
    TARGET,
    USAGE,
    Breakpoints,
    Leftover,
    Record,
    Started,
    await_no_probes,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.processes import children_of

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
COUNTS, MANY, INTERRUPTED, GONE_S, SETTLE_S, FAILED, NO_PID = (
    (5, 9, 14),
    200,
    130,
    3.0,
    1.2,
    1,
    1 << 29,
)
Process = subprocess.Popen[Any]
Attach = Callable[..., Process]


@pytest.fixture
def servers(program: Path, started: Started) -> list[Process]:
    return [started(program, "tls", "s" * count) for count in COUNTS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "captures"


@pytest.fixture
def attach(spawn: Record, tlstax: list[str], repository: Path, folder: Path) -> Attach:
    """Start `tlstax attach` of some processes; it is attached when this returns."""

    def run(pids: list[int], *more: str, waits: bool = True) -> Process:
        command = [*tlstax, "attach", *map(str, pids), "-o", str(folder), "--quiet", *more]
        command += ["--definitions", str(repository / "tests/testprogs")]
        process = spawn(command, stderr=subprocess.PIPE, text=True)
        for pid in pids if waits else ():
            assert process.stderr is not None
            while f"attached to {pid}," not in (line := str(process.stderr.readline())):
                assert line, "it ended"
        return process

    return run


def ended(process: Process, end: bool = True) -> str:
    """Ctrl-C, and what it said then."""
    if end:
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=COMMAND_S)
    assert "Traceback" not in said
    return str(said)


def capture_of(folder: Path, pid: int) -> Path:
    (found,) = folder.glob(f"truth-{pid}.tlstax")
    return found


def meta_of(capture: Path) -> dict[str, str]:
    return {row.key: row.value for row in rows_of(capture, schema.Meta)}


def errors_in(said: str) -> list[str]:
    """The lines that are errors: what, why, what to do."""
    return [line for line in said.splitlines() if re.fullmatch(r"tlstax: .+: .+\. .+\.", line)]


@pytest.mark.parametrize("more", [("--budget", "none"), ("--budget", "50%"), ()])
def test_each_has_a_capture_as_if_it_were_alone(
    servers: list[Process], attach: Attach, folder: Path, breakpoints: Breakpoints,
    leftover: Leftover, more: tuple[str, ...],
) -> None:  # fmt: skip
    pids = [server.pid for server in servers]
    process = attach(pids, *more)
    names = list(children_of(process.pid).values())
    assert names.count("tlstax-recorder") == 1
    for server in servers:
        serve(server)
    time.sleep(SETTLE_S)
    said = ended(process)
    assert process.returncode == OK, said
    assert "explains one of 3 captures" in said
    assert leftover() == set()
    for pid, count in zip(pids, COUNTS, strict=True):
        capture = capture_of(folder, pid)
        assert (capture.stat().st_mode & 0o777, breakpoints(pid)) == (0o600, 0)
        assert [row.pid for row in rows_of(capture, schema.Target)] == [pid]
        if more == ("--budget", "none"):
            assert len(rows_of(capture, schema.Handshake)) == count
        meta = meta_of(capture)
        assert meta["recorded_with"] == ", ".join(str(other) for other in pids if other != pid)
        assert meta["target_ending"] == "it was running"
        assert meta["recording_id"] == meta_of(capture_of(folder, pids[0]))["recording_id"] != ""
        assert int(meta["start_cpu_ns"]) > 0
        assert sum(row.engine_cpu_ns for row in rows_of(capture, schema.System)) > 0


def test_one_that_is_killed_costs_its_own_line(
    servers: list[Process], attach: Attach, folder: Path, breakpoints: Breakpoints
) -> None:
    first, second, third = servers
    process = attach([server.pid for server in servers], "--budget", "none")
    for server in (first, second):
        serve(server)
    second.kill()
    second.wait()
    assert process.stderr is not None
    notice = process.stderr.readline()
    assert f"process {second.pid} is no longer recorded: it exited or was killed" in notice
    assert breakpoints(first.pid) > 10
    serve(third)
    said = ended(process)
    assert process.returncode == TARGET, said
    (error,) = errors_in(said)
    assert f"process {second.pid} ended while it was recorded" in error
    assert "explains one of 2 captures" in said
    for server, count in zip(servers, COUNTS, strict=True):
        assert len(rows_of(capture_of(folder, server.pid), schema.Handshake)) == count
    assert meta_of(capture_of(folder, second.pid))["target_ending"] == "it exited or was killed"
    assert meta_of(capture_of(folder, third.pid))["target_ending"] == "it was running"


def test_it_ends_with_the_last_one(servers: list[Process], attach: Attach, folder: Path) -> None:
    process = attach([server.pid for server in servers[:2]], "--budget", "none")
    for server in servers[:2]:
        server.kill()
        server.wait()
    said = ended(process, end=False)
    assert process.returncode == TARGET, said
    assert len(errors_in(said)) == 2
    assert len(list(folder.iterdir())) == 2


def test_what_cannot_be_recorded_leaves_the_others(
    servers: list[Process], attach: Attach, folder: Path, spawn: Record
) -> None:
    """No such process; a program without TLS; a capture that is there."""
    folder.mkdir()
    (earlier := folder / f"truth-{servers[1].pid}.tlstax").write_text("mine")
    (asleep := spawn(["sleep", "1000"]))
    pids = [NO_PID, asleep.pid, servers[1].pid, servers[0].pid]
    process = attach(pids, "--for", "2s", "--budget", "none", waits=False)
    assert process.stderr is not None
    said = ""
    while "attached" not in said:
        said += process.stderr.readline()
    serve(servers[0])
    said += ended(process, end=False)
    assert process.returncode == TARGET, said
    errors = errors_in(said)
    assert [str(pid) in error for pid, error in zip(pids, errors, strict=False)] == [True] * 3
    assert "the file exists" in errors[2]
    assert earlier.read_text() == "mine"
    assert {path.name for path in folder.iterdir()} == {
        earlier.name, f"truth-{servers[0].pid}.tlstax",
    }  # fmt: skip
    assert len(rows_of(capture_of(folder, servers[0].pid), schema.Handshake)) == COUNTS[0]
    assert "recorded_with" not in meta_of(capture_of(folder, servers[0].pid))


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_what_the_recorder_refuses_leaves_the_others(
    servers: list[Process], repository: Path, tmp_path: Path, gone: int
) -> None:
    """It was there when it was planned for."""
    ready = [
        make_ready(
            Request(
                server.pid, tmp_path / str(server.pid), definitions=repository / "tests/testprogs"
            )
        )
        for server in servers
    ]
    servers[gone].kill()
    servers[gone].wait()
    told: dict[int, TlstaxError] = {}
    with SeveralServers(ready, lambda pid, error: told.update({pid: error})) as recordings:
        left = [server for server in servers if server is not servers[gone]]
        assert [one.pid for one in recordings.current] == [server.pid for server in left]
        for server in left:
            serve(server)
        recordings.poll(SETTLE_S)
    assert list(told) == [servers[gone].pid]
    assert told[servers[gone].pid].exit_code == TARGET
    assert not (tmp_path / str(servers[gone].pid)).exists()
    for server in left:
        capture = tmp_path / str(server.pid)
        assert len(rows_of(capture, schema.Handshake)) == COUNTS[servers.index(server)]
        assert str(servers[gone].pid) not in meta_of(capture)["recorded_with"]


def test_an_earlier_capture_is_replaced_with_force(
    servers: list[Process], attach: Attach, folder: Path
) -> None:
    pids = [server.pid for server in servers[:2]]
    for more in ((), ("--force",)):
        process = attach(pids, *more)
        assert (ended(process), process.returncode)[1] == OK
    process = attach(pids, waits=False)
    said = ended(process, end=False)
    assert process.returncode == USAGE
    assert len(errors_in(said)) == 2


def test_all_of_a_name(
    program: Path, started: Started, attach: Attach, folder: Path, tmp_path: Path
) -> None:
    (alias := tmp_path / f"server{os.getpid()}").symlink_to(program)
    both = [started(alias, "tls", "s") for _ in range(2)]  # each has a client of that name, too
    words = ("--name", alias.name)
    said = ended(attach([], *words, waits=False), end=False)
    assert f"4 processes are called {alias.name}" in said
    assert "or --all to record each of them" in said
    process = attach([], *words, "--all", "--for", "1s", waits=False)
    said = ended(process, end=False)
    assert process.returncode == OK, said
    names = {path.name for path in folder.iterdir()}
    assert names >= {f"{alias.name}-{server.pid}.tlstax" for server in both}
    assert len(names) == 4


def test_a_killed_recorder_is_told_of_each(
    servers: list[Process], attach: Attach, breakpoints: Breakpoints
) -> None:
    process = attach([server.pid for server in servers[:2]], "--budget", "none")
    (recorder,) = (p for p, name in children_of(process.pid).items() if name == "tlstax-recorder")
    subprocess.run(["kill", "-9", str(recorder)], check=True)
    said = ended(process, end=False)
    assert process.returncode == FAILED, said
    assert len(errors_in(said)) == 2
    for server in servers[:2]:
        assert await_no_probes(breakpoints, server.pid, GONE_S) < GONE_S


def test_a_killed_tlstax_leaves_nothing(
    servers: list[Process], attach: Attach, breakpoints: Breakpoints, leftover: Leftover
) -> None:
    process = attach([server.pid for server in servers])
    process.kill()
    process.communicate(timeout=COMMAND_S)
    for server in servers:
        assert await_no_probes(breakpoints, server.pid, GONE_S) < GONE_S
    assert leftover() == set()


def test_interrupted_before_it_is_attached(
    servers: list[Process], attach: Attach, folder: Path, breakpoints: Breakpoints
) -> None:
    process = attach([server.pid for server in servers], waits=False)
    while not folder.exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.1)
    said = ended(process)
    assert process.returncode == INTERRUPTED, said
    assert "interrupted" in said
    assert not folder.exists()
    assert [breakpoints(server.pid) for server in servers] == [0, 0, 0]


@pytest.mark.parametrize("tlstax", [least_budget.TLSTAX], ids=["least"])
def test_a_budget_that_nothing_fits_is_of_one(
    servers: list[Process], attach: Attach, folder: Path
) -> None:
    """All are idle, and each says so."""
    process = attach([server.pid for server in servers[:2]], *least_budget.OPTIONS, waits=False)
    said = ended(process, end=False)
    assert process.returncode == 7, said
    assert len(errors_in(said)) == 2
    assert not folder.exists()


def test_a_capture_that_cannot_be_written_ends_all(
    program: Path, started: Started, attach: Attach, folder: Path, breakpoints: Breakpoints
) -> None:
    """Its server would be recorded for nobody."""
    servers = [started(program, "tls", "s" * count) for count in (MANY, 1)]
    process = attach([server.pid for server in servers], "--budget", "none")
    most = capture_of(folder, servers[0].pid).stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
    serve(servers[0])
    said = ended(process, end=False)
    assert process.returncode == IO, said
    assert "cannot write the capture" in errors_in(said)[0]
    assert "the other recordings end, too" in said
    for server in servers:
        assert breakpoints(server.pid) == 0

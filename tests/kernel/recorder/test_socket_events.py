# SPDX-License-Identifier: GPL-2.0-only
"""What the recorder takes for events of sockets: what this host has, and nothing that it lacks."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode
from tlstax.collectors.host.features import HOST, socket_source
from tlstax.collectors.host.socket_events import FUNCTIONS, SocketSource
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.programs.names import SOCKET_FUNCTIONS, SOCKET_TRACEPOINTS
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.probes.model import Level
from tlstax.tests.kernel.recorder_runs import OK, PROGRAM, USAGE

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

CODE: Final = """
import socket, ssl, time
pairs = [socket.socketpair()]
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    try:
        with socket.create_server((address, 0), family=family) as server:
            pairs.append((socket.create_connection(server.getsockname()[:2]), server.accept()[0]))
    except OSError:
        pass
print("ready", flush=True)
while True:
    for one, other in pairs:
        one.send(b"x")
        other.recv(1)
    time.sleep(0.01)
"""
RecordAt = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Where the recorder writes."""
    return tmp_path / "a.stream"


@pytest.fixture
def record_at(tmp_path: Path, stream: Path) -> Iterator[RecordAt]:
    """Record a process that sends and receives for a second."""
    with subprocess.Popen(["/usr/bin/python3", "-c", CODE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()

        def run(level: Level, *options: str) -> "subprocess.CompletedProcess[str]":
            plan = tmp_path / "a.plan"
            target, planned = plan_in_child(process.pid, level)
            plan.write_text(plan_file_text(target, planned, Safety()))
            command = [str(PROGRAM), "--plan", str(plan), "--pid", str(process.pid)]
            command += ["--for", "1s", "--output", str(stream), *options]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        yield run
        process.kill()


def runs_of_programs(stream: Path) -> dict[str, tuple[str, int]]:
    """Kind and runs of the programs at events of sockets."""
    names = SOCKET_TRACEPOINTS.keys() | SOCKET_FUNCTIONS.keys()
    with stream.open("rb") as file:
        replay = Replay(file)
        while replay.next_window():
            pass
        costs = replay.program_costs()
        return {name: (costs[name][0], replay.programs[name][1]) for name in names & costs.keys()}


@pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets")
def test_it_uses_what_the_desk_planned_for(record_at: RecordAt, stream: Path) -> None:
    done = record_at(Level.FLOW)
    assert done.returncode == OK, done.stderr
    with stream.open("rb") as file:
        assert Replay(file).socket_source == socket_source(HOST)


@pytest.mark.skipif(not HOST.socket_tracepoints, reason="this kernel lacks the tracepoints")
def test_tracepoints_come_first(record_at: RecordAt, stream: Path) -> None:
    assert record_at(Level.FLOW).returncode == OK
    programs = runs_of_programs(stream)
    assert programs.keys() == SOCKET_TRACEPOINTS.keys()
    assert all(kind == "tp_btf" and runs > 0 for kind, runs in programs.values())


@pytest.mark.skipif(not HOST.socket_functions, reason="this kernel lacks such programs")
def test_each_kind_of_socket_has_functions(record_at: RecordAt, stream: Path) -> None:
    done = record_at(Level.FLOW, "--socket-events", "functions")
    assert done.returncode == OK, done.stderr
    programs = runs_of_programs(stream)
    assert set(SOCKET_FUNCTIONS.values()) == FUNCTIONS.keys()
    assert programs.keys() == SOCKET_FUNCTIONS.keys()
    assert all(kind == "fexit" and runs > 0 for kind, runs in programs.values()), programs


@pytest.mark.skipif(
    bool(HOST.socket_functions), reason="this kernel lacks a refusal of such programs"
)
def test_where_they_are_refused_level_flow_is_and_the_recorder_says_why(
    record_at: RecordAt, stream: Path
) -> None:
    done = record_at(Level.FLOW, "--socket-events", "functions")
    assert done.returncode == ExitCode.HOST, done.stderr
    assert "level flow: this kernel has no events of sockets" in done.stderr
    assert "at the returns of its socket functions" in done.stderr, done.stderr


@pytest.mark.skipif(
    bool(HOST.socket_functions), reason="this kernel lacks a refusal of such programs"
)
def test_where_they_are_refused_level_record_has_all_its_probes(
    record_at: RecordAt, stream: Path
) -> None:
    done = record_at(Level.RECORD, "--socket-events", "functions")
    assert done.returncode == OK, done.stderr
    with stream.open("rb") as file:
        replay = Replay(file)
    assert replay.socket_source == SocketSource.NONE
    assert all(map(replay.is_attached, replay.plan.sites))


@pytest.mark.parametrize("source", ["none", "unknown", ""])
def test_no_other_source_can_be_named(source: str) -> None:
    command = [str(PROGRAM), "--plan", "x", "--pid", "1", "--socket-events", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "is out of range or unknown" in done.stderr) == (USAGE, True)

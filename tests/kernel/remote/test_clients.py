# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach --ssh --client`: a server and its clients of another host, in one capture."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tlstax.collectors.capture import schema
from tlstax.tests.kernel.recorder_runs import (
    HANDSHAKES,
    IO,
    OK,
    TARGET,
    USAGE,
    Breakpoints,
    Leftover,
    Process,
    Started,
    rows_of,
    serve,
)
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, said, ssh_of

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
COUNTS = (5, 9)
NO_PID, SETTLE_S, NS_PER_S = 1 << 22, 1.0, 1_000_000_000
CALLED = """
import os, ssl, sys
open("/proc/self/comm", "w").write(f"tl-{os.getpid()}")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def clients(program: Path, started: Started) -> list[Process]:
    """Processes with TLS that wait for their go byte."""
    return [started(program, "tls", "s" * count) for count in COUNTS]


def options_for(*clients: object) -> list[str]:
    return [word for one in clients for word in ("--client", str(one))]


def handshakes_of(capture: Path) -> Counter[int]:
    """How many are in windows of each process, by its pid."""
    targets = {row.target_id: row.pid for row in rows_of(capture, schema.Target)}
    windows = {row.window_id: row.target_id for row in rows_of(capture, schema.Window)}
    return Counter(targets[windows[row.window_id]] for row in rows_of(capture, schema.Handshake))


def test_both_sides_are_in_one_capture(
    attach: Attach, clients: list[Process], recorded_server: Process, capture: Path,
    box: RemoteHost, breakpoints: Breakpoints, leftover: Leftover,
) -> None:  # fmt: skip
    """One client ends early: all handshakes are there, and windows have the server's ends."""
    everybody = [recorded_server, *clients]
    process = attach(*options_for(*(one.pid for one in clients)))
    assert len(box.processes("tlstax-recorder")) == 1
    assert all(breakpoints(one.pid) > 10 for one in everybody)
    for one in everybody:
        serve(one)
    assert clients[0].stdin is not None
    clients[0].stdin.write(b"x")
    clients[0].wait()
    time.sleep(SETTLE_S)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert capture.stat().st_mode & 0o777 == 0o600
    roles = {row.pid: row.role for row in rows_of(capture, schema.Target)}
    assert roles == {recorded_server.pid: "server", **{one.pid: "client" for one in clients}}
    counts = (HANDSHAKES, *COUNTS)
    expected = {one.pid: count for one, count in zip(everybody, counts, strict=True)}
    assert handshakes_of(capture) == expected
    windows = {row.window_id: row for row in rows_of(capture, schema.Window)}
    of_server = {(row.start_ns, row.end_ns) for row in windows.values() if row.target_id == 1}
    of_clients = {(row.start_ns, row.end_ns) for row in windows.values() if row.target_id > 1}
    assert len(of_clients) >= 4
    assert of_clients <= of_server
    for row in rows_of(capture, schema.Handshake):
        assert windows[row.window_id].start_ns <= row.end_ns <= windows[row.window_id].end_ns
    spent_ns = [row.engine_cpu_ns for row in rows_of(capture, schema.System)]
    assert all(ns >= 0 for ns in spent_ns)
    assert sum(spent_ns) > 0
    assert any(not row.symbol.startswith("[") for row in rows_of(capture, schema.Frame))


def test_windows_of_both_begin_when_both_are_attached_to(
    attach: Attach, clients: list[Process], recorded_server: Process, capture: Path
) -> None:
    """Not where the server's first window would end, a minute later."""
    process = attach(*options_for(clients[0].pid), "--window", "60s")
    for one in (recorded_server, clients[0]):
        serve(one)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    expected = {recorded_server.pid: HANDSHAKES, clients[0].pid: COUNTS[0]}
    assert handshakes_of(capture) == expected
    windows = rows_of(capture, schema.Window)
    assert [row.target_id for row in windows] == [1, 1, 2]
    assert windows[1].start_ns == windows[2].start_ns
    assert windows[0].end_ns - windows[0].start_ns < 30 * NS_PER_S


def test_a_client_by_its_name(
    attach: Attach, spawn: Started, capture: Path, recorded_server: Process
) -> None:
    client = spawn([sys.executable, "-c", CALLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    process = attach(*options_for(f"tl-{client.pid}"), "--for", "1s")
    said(process, OK)
    targets = {row.pid: row.role for row in rows_of(capture, schema.Target)}
    assert targets == {recorded_server.pid: "server", client.pid: "client"}


def test_functions_of_the_server_go_with_a_client(
    attach: Attach, clients: list[Process], recorded_server: Process, capture: Path
) -> None:
    process = attach(*options_for(clients[0].pid), "--functions", "cipher", "--for", "2s")
    for one in (recorded_server, clients[0]):
        serve(one)
    said(process, OK)
    windows = {row.window_id: row.target_id for row in rows_of(capture, schema.Window)}
    calls = rows_of(capture, schema.PrimitiveCalls)
    assert {windows[row.window_id] for row in calls} == {1}
    assert handshakes_of(capture)[clients[0].pid] == COUNTS[0]


def test_a_server_that_ends_ends_the_recording(
    attach: Attach, clients: list[Process], recorded_server: Process, capture: Path,
    box: RemoteHost, leftover: Leftover,
) -> None:  # fmt: skip
    """Though its clients live, and without a word from here."""
    process = attach(*options_for(clients[0].pid))
    serve(recorded_server)
    recorded_server.kill()
    text = said(process, TARGET)
    assert "it exited or was killed" in text
    assert f"{capture} is complete until then" in text
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert clients[0].poll() is None
    assert handshakes_of(capture) == {recorded_server.pid: HANDSHAKES}


def test_ssh_is_killed(
    attach: Attach, clients: list[Process], recorded_server: Process, capture: Path,
    box: RemoteHost, leftover: Leftover,
) -> None:  # fmt: skip
    process = attach(*options_for(clients[0].pid))
    for one in (recorded_server, clients[0]):
        serve(one)
    time.sleep(SETTLE_S)
    os.kill(ssh_of(process), signal.SIGKILL)
    assert "the line to box was cut" in said(process, IO)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    expected = {recorded_server.pid: HANDSHAKES, clients[0].pid: COUNTS[0]}
    assert handshakes_of(capture) == expected


def test_what_cannot_be_a_client(
    starting: Attach, recorded_server: Process, clients: list[Process], capture: Path,
    box: RemoteHost, leftover: Leftover,
) -> None:  # fmt: skip
    """Nothing is recorded without it: one error, and nothing there or here."""
    server, client = recorded_server.pid, clients[0].pid
    for wanted, code, why in (
        ([NO_PID], TARGET, "there is no such process"),
        ([server], USAGE, f"process {server} was given twice"),
        ([client, client], USAGE, f"process {client} was given twice"),
        (["no-such-client"], TARGET, "is called no-such-client"),
    ):
        text = said(starting(server, *options_for(*wanted)), code)
        assert why in text
        assert "Traceback" not in text
        box.await_nothing_left(GONE_SECONDS)
        assert leftover() == set()
        assert not capture.exists()


def test_a_client_that_is_traced(
    starting: Attach, recorded_server: Process, traced: Process, capture: Path, box: RemoteHost
) -> None:
    """A debugger of the client would be in the way, as one of the server."""
    text = said(starting(recorded_server.pid, *options_for(traced.pid)), TARGET)
    assert f"process {traced.pid} is not recorded" in text
    box.await_nothing_left(GONE_SECONDS)
    assert not capture.exists()

# SPDX-License-Identifier: GPL-2.0-only
"""A client recorded beside a server: what its recorder wrote arrives, whatever ends when."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.host.clock import cpu_used_ns
from tlstax.collectors.recording.by_recorder import child, peers
from tlstax.collectors.recording.by_recorder.peers import Peer, PeerRequest, PeerSet
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.tests.kernel.recorder_runs import Breakpoints, Leftover, Started, rows_of, serve
from tlstax.tests.processes import children_of

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
MANY: Final = 1600  # handshakes: more than a small queue and its pipe hold
FEW: Final = 5
WINDOWS: Final = 10
POLL_S, LATER_S, BUSY_NS, LONG_NS = 0.5, 3.0, 2_000_000_000, 1 << 40


@pytest.fixture
def server(program: Path, started: Started) -> "subprocess.Popen[bytes]":
    return started(program, "tls", "s")


@pytest.fixture
def client(program: Path, started: Started) -> "subprocess.Popen[bytes]":
    """A process with TLS that waits for its go byte."""
    return started(program, "tls", "s" * MANY)


def recorders() -> int:
    """How many recorders this process has started that still run."""
    return list(children_of(os.getpid()).values()).count("tlstax-recorder")


def request_for(pid: int, repository: Path, capture: Path, **more: Any) -> Request:
    return Request(pid, capture, definitions=repository / "tests/testprogs", **more)


def poll_for(recording: Recorder, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        recording.poll(POLL_S)


def is_recorded(pid: int) -> bool:
    """Whether a recorder of the process runs."""
    option = f"--pid\0{pid}\0".encode()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if option in file.read_bytes():
                return True
    return False


def test_clients_that_are_there_from_the_start_have_no_recorder_of_their_own(
    server: "subprocess.Popen[bytes]", program: Path, started: Started, repository: Path,
    tmp_path: Path, breakpoints: Breakpoints,
) -> None:  # fmt: skip
    """One ends early, one stays: each has its handshakes, and windows with the server's ends."""
    clients = [started(program, "tls", "s" * count) for count in (FEW, 2 * FEW)]
    capture, before = tmp_path / "a.tlstax", recorders()
    request = request_for(server.pid, repository, capture, clients=tuple(c.pid for c in clients))
    with Recorder(request) as recording:
        assert recorders() == before + 1
        assert all(breakpoints(one.pid) > 10 for one in (server, *clients))
        poll_for(recording, POLL_S)
        for client in clients:
            serve(client)
        first = clients[0]
        assert first.stdin is not None
        first.stdin.write(b"x")
        first.wait()
        poll_for(recording, LATER_S)
        assert breakpoints(clients[1].pid) > 10
        assert not recording.ending
    assert recorders() == before
    targets = {row.pid: row.target_id for row in rows_of(capture, schema.Target)}
    assert set(targets) == {server.pid, *(client.pid for client in clients)}
    windows = rows_of(capture, schema.Window)
    target_of = {row.window_id: row.target_id for row in windows}
    done = Counter(target_of[row.window_id] for row in rows_of(capture, schema.Handshake))
    assert done == {targets[clients[0].pid]: FEW, targets[clients[1].pid]: 2 * FEW}
    ends = {row.end_ns for row in windows if row.target_id == 1}
    assert {row.end_ns for row in windows} == ends
    assert len(ends) < len(windows)
    spent_ns = [row.engine_cpu_ns for row in rows_of(capture, schema.System)]
    assert all(ns >= 0 for ns in spent_ns)
    assert sum(spent_ns) > 0


def test_a_server_that_is_killed_ends_the_recording_though_its_client_lives(
    server: "subprocess.Popen[bytes]", client: "subprocess.Popen[bytes]", repository: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """The recorder's exit status is that of all processes; the recording is the server's."""
    request = request_for(server.pid, repository, tmp_path / "a.tlstax", clients=(client.pid,))
    with Recorder(request) as recording:
        server.kill()
        server.wait()
        until_s = time.monotonic() + LATER_S
        while not recording.ending and time.monotonic() < until_s:
            recording.poll(POLL_S)
    assert recording.ending == "it exited or was killed"
    assert client.poll() is None


@pytest.mark.parametrize("at_once_most", [1, 15])
def test_clients_beyond_those_of_one_recorder_and_later_ones(
    server: "subprocess.Popen[bytes]", program: Path, started: Started, repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once_most: int,
) -> None:  # fmt: skip
    """All windows end with the server's, and none is that of the time before."""
    monkeypatch.setattr(peers, "_OTHERS_MOST", at_once_most)
    clients = [started(program, "tls", "s" * (FEW + number)) for number in range(3)]
    capture, before = tmp_path / "a.tlstax", recorders()
    first = tuple(one.pid for one in clients[:2])
    with Recorder(request_for(server.pid, repository, capture, clients=first)) as recording:
        assert recorders() == before + 1 + (at_once_most == 1)
        recording.add_client(clients[2].pid)
        for one in clients:
            serve(one)
        poll_for(recording, LATER_S)
        assert not recording.ending
    targets = {row.target_id: row.pid for row in rows_of(capture, schema.Target)}
    windows = {row.window_id: row for row in rows_of(capture, schema.Window)}
    shakes = rows_of(capture, schema.Handshake)
    done = Counter(targets[windows[row.window_id].target_id] for row in shakes)
    assert done == {one.pid: FEW + number for number, one in enumerate(clients)}
    ends = {row.end_ns for row in windows.values() if row.target_id == 1}
    assert {row.end_ns for row in windows.values()} == ends
    for row in shakes:
        assert windows[row.window_id].start_ns <= row.end_ns <= windows[row.window_id].end_ns


def test_a_queue_is_emptied_between_windows(
    server: "subprocess.Popen[bytes]", client: "subprocess.Popen[bytes]", repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The client's window ends with the server's, which may be minutes later."""
    monkeypatch.setattr(child, "_QUEUE", "256K")
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture, window_s=600)) as recording:
        recording.add_client(client.pid)
        assert client.stdin is not None
        with ThreadPoolExecutor(1) as meanwhile:
            served = meanwhile.submit(serve, client)
            while not served.done():
                poll_for(recording, POLL_S)
            served.result()
        client.stdin.write(b"x")
        client.wait()
        poll_for(recording, LATER_S)  # nobody reads for longer than a recorder waits at its end
    assert sum(row.outcome == "success" for row in rows_of(capture, schema.Handshake)) == MANY
    assert not [row for row in rows_of(capture, schema.Gap) if "its recording" in row.subject]


def test_a_client_that_ends_after_its_window_has_a_last_one(
    server: "subprocess.Popen[bytes]", program: Path, started: Started, repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It works and ends while what belongs to the server's window is being stored."""
    client = started(program, "tls", "s" * FEW)
    finish = PeerSet.finish

    def later(peers: PeerSet, all_of_them: bool = False) -> Iterator[list[schema.Row]]:
        if peers.has_client and client.poll() is None:
            assert client.stdin is not None
            serve(client)
            client.stdin.write(b"x")
            client.wait()
            while is_recorded(client.pid):
                time.sleep(POLL_S)
            peers.listen()
        yield from finish(peers, all_of_them)

    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        recording.add_client(client.pid)
        monkeypatch.setattr(PeerSet, "finish", later)
        poll_for(recording, LATER_S)
        assert client.returncode is not None
    assert sum(row.outcome == "success" for row in rows_of(capture, schema.Handshake)) == FEW


def test_a_client_that_could_not_begin_has_no_probes(
    server: "subprocess.Popen[bytes]", client: "subprocess.Popen[bytes]", repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakpoints: Breakpoints, leftover: Leftover,
) -> None:  # fmt: skip
    def full(_: Recorder) -> None:
        assert breakpoints(client.pid) > 10
        raise TlstaxError("cannot write", "database or disk is full", "", ExitCode.IO)

    with Recorder(request_for(server.pid, repository, tmp_path / "a.tlstax")) as recording:
        with monkeypatch.context() as broken:
            broken.setattr(Recorder, "_cut", full)
            with pytest.raises(TlstaxError, match="disk is full"):
                recording.add_client(client.pid)
        assert breakpoints(client.pid) == 0
        assert breakpoints(server.pid) > 10
        poll_for(recording, 1)
    assert leftover() == set()
    assert {row.role for row in rows_of(tmp_path / "a.tlstax", schema.Target)} == {"server"}


def test_the_start_of_a_client_is_counted_and_not_expected_of_every_window(
    server: "subprocess.Popen[bytes]", client: "subprocess.Popen[bytes]", repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    attach = PeerSet.attach

    def busy(peers: PeerSet, request: PeerRequest) -> Peer:
        until_ns = cpu_used_ns() + BUSY_NS
        while cpu_used_ns() < until_ns:
            pass
        peer = attach(peers, request)
        assert peers.own_cpu_ns == peer.own_costs[0] > 0
        return peer

    monkeypatch.setattr(PeerSet, "attach", busy)
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        recording.add_client(client.pid)
        poll_for(recording, LATER_S)
    counted_ns = [row.engine_cpu_ns for row in rows_of(capture, schema.System)]
    assert sum(counted_ns) > BUSY_NS
    with CaptureReader.open(capture) as reader:
        expected = float(reader.meta()["predicted_engine_share"])
    # Of the tenth of a CPU that an idle server counts as, in a window of a second.
    assert expected * 0.1 * 1e9 < BUSY_NS / 2


def test_the_clients_recorder_is_counted_in_the_window_in_which_it_worked(
    server: "subprocess.Popen[bytes]", client: "subprocess.Popen[bytes]", repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It was in the next one, so that the last was in none."""
    cut, finish, count = Peer.cut, PeerSet.finish, 0

    def counted(peer: Peer, run_id: int | None, end_ns: int) -> Any:
        nonlocal count
        found = cut(peer, run_id, end_ns)
        count += found is not None
        return found

    def busy(peers: PeerSet, all_of_them: bool = False) -> Iterator[list[schema.Row]]:
        until_ns = cpu_used_ns() + BUSY_NS * all_of_them
        while cpu_used_ns() < until_ns:
            pass
        yield from finish(peers, all_of_them)

    monkeypatch.setattr(Peer, "cut", counted)
    monkeypatch.setattr(Peer, "own_costs", property(lambda _: (count * LONG_NS, 1)))
    monkeypatch.setattr(PeerSet, "finish", busy)
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        recording.add_client(client.pid)
        poll_for(recording, LATER_S)
    windows = rows_of(capture, schema.Window)
    mine = {row.end_ns for row in windows if row.target_id != 1}
    ends = {row.window_id: row.end_ns for row in windows}
    assert count == len(mine) > 1
    found = {row.window_id: row.engine_cpu_ns // LONG_NS for row in rows_of(capture, schema.System)}
    assert found == {window_id: int(ends[window_id] in mine) for window_id in found}
    with CaptureReader.open(capture) as reader:
        assert BUSY_NS <= int(reader.meta()["end_cpu_ns"]) < LONG_NS


def test_a_process_is_recorded_once(
    server: "subprocess.Popen[bytes]", client: "subprocess.Popen[bytes]", repository: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    with Recorder(request_for(server.pid, repository, tmp_path / "a.tlstax")) as recording:
        recording.add_client(client.pid)
        for pid in (server.pid, client.pid):
            with pytest.raises(TlstaxError, match=f"process {pid} was given twice") as caught:
                recording.add_client(pid)
            assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.timeout(120)  # it was waited for a window that did not come
def test_a_server_that_executes_a_program_ends_the_recording(
    client: "subprocess.Popen[bytes]", program: Path, started: Started, repository: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakpoints: Breakpoints,
) -> None:  # fmt: skip
    """Two windows may end where it did so; the client's recorder has one with that end."""
    cut = PeerSet.cut

    def twice(peers: PeerSet, run_id: int | None, end_ns: int) -> Iterator[list[schema.Row]]:
        yield from cut(peers, run_id, end_ns)
        yield from cut(peers, run_id, end_ns)

    monkeypatch.setattr(PeerSet, "cut", twice)
    server = started(program, "execute", program, "20")
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        recording.add_client(client.pid)
        poll_for(recording, POLL_S)
        assert server.stdin is not None
        server.stdin.write(b"g")
        for _ in range(WINDOWS):
            recording.poll(1.0)
    assert "executed" in recording.ending
    assert breakpoints(client.pid) == 0
    assert {row.role for row in rows_of(capture, schema.Target)} == {"server", "client"}

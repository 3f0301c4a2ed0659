# SPDX-License-Identifier: GPL-2.0-only
"""Clients of a server on another host: windows go with the server's, whatever arrives when."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.target import open_target
from tlstax.collectors.recording.by_recorder.live_stream import LivePart
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.destination import Destination
from tlstax.collectors.remote.remote_recording import RecordRequest
from tlstax.collectors.remote.remote_stream import RemoteStream
from tlstax.probes.model import Level
from tlstax.tests.unit.recording.streams import frame, struct, window

SECOND = 1_000_000_000
SERVER, CLIENT = 4711, 4712
SERVER_NS, CLIENT_NS = 100, 1000  # CPU time of the recorder for each, in a window
Part = tuple[str, bytes]


class Line:
    """A connection that says nothing by itself."""

    destination = Destination("db1")
    refusal = Connection.refusal

    def said(self) -> str:
        return "ssh said so"


class Recording:
    """A recording of a server and a client; the test brings their frames."""

    def __init__(self, folder: Path) -> None:
        self.told: list[str] = []
        self.capture = folder / "a.tlstax"
        writer = CaptureWriter.create(self.capture)
        line = cast(Connection, Line())
        self.stream = RemoteStream(line, SERVER, writer, self.told.append)
        self.stream.peers.pids.append(CLIENT)
        self.parts = [LivePart(), LivePart()]
        self._counts = [0, 0]
        self.stream.receive(self.parts[0], 0, list)
        self.stream.peers.receive(self.parts[1:])

    def arrive(self, who: int, *frames: Part, is_last: bool = False) -> None:
        """Frames of the server (0) or the client (1), and store what is whole."""
        for kind, content in frames:
            self.parts[who].take(frame(self._counts[who], kind, content, who))
            self._counts[who] += 1
        self.parts[who].is_over = is_last
        self.stream.store()

    def rows(self, table: type[Any]) -> list[Any]:
        with CaptureReader.open(self.capture) as reader:
            return list(reader.rows(table))

    def windows(self, target_id: int) -> list[tuple[int, int]]:
        """Start and end of those that are in the capture, in seconds."""
        return [
            (row.start_ns // SECOND, row.end_ns // SECOND)
            for row in self.rows(schema.Window)
            if row.target_id == target_id
        ]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def head(pid: int, role: str) -> list[Part]:
    """What a stream begins with."""
    plan = Plan(pid, Level.RECORD, (), (), (), role=role)
    text = plan_file_text(open_target(os.getpid()), plan, Safety()).encode()
    start = struct("start", pid=pid, cpus_count=1, online_count=1, level=b"record", multi=1)
    return [("START", start), ("PLAN", text)]


def of_server(number: int) -> Part:
    return window(number, (number + 1) * SECOND, own_cpu_ns=number * SERVER_NS)


def of_client(number: int) -> Part:
    return window(number, (number + 1) * SECOND, own_cpu_ns=number * CLIENT_NS)


def ended(code: int = ExitCode.OK) -> list[Part]:
    """The last frames of a target."""
    error = ("ERROR", struct("error", exit_code=code, text=b"process 4712 ended"))
    ending = b"it exited or was killed" if code else b"it was running"
    return [*([error] if code else []), ("END", struct("end", exit_code=code, ending=ending))]


def begin(recording: Recording) -> None:
    """Both are attached to, the client a little later, and the first windows have ended."""
    recording.arrive(0, *head(SERVER, "server"), of_server(0))
    recording.arrive(1, *head(CLIENT, "client"), window(0, SECOND + 1))
    recording.arrive(0, of_server(1))
    recording.arrive(1, of_client(1))


def test_windows_of_both_have_the_same_start_and_end(recording: Recording) -> None:
    begin(recording)
    for number in (2, 3):
        recording.arrive(1, of_client(number))
        recording.arrive(0, of_server(number))
    recording.arrive(1, *ended(), is_last=True)
    recording.arrive(0, *ended(), is_last=True)
    recording.stream.finish()
    recording.stream.close()
    assert recording.told == [f"attached to {SERVER} on db1, and to its client {CLIENT}"]
    assert recording.windows(1) == [(1, 2), (2, 3), (3, 4)]
    assert recording.windows(2) == [(2, 3), (3, 4)], "it begins where both were attached to"
    targets = [(row.target_id, row.pid, row.role) for row in recording.rows(schema.Target)]
    assert targets == [(1, SERVER, "server"), (2, CLIENT, "client")]
    spent_ns = [row.engine_cpu_ns for row in recording.rows(schema.System)]
    assert spent_ns == [SERVER_NS + CLIENT_NS] * 3, "the recorder counts for each of them"
    assert recording.rows(schema.Gap) == []


def test_the_server_s_window_waits_for_the_client_s(recording: Recording) -> None:
    recording.arrive(0, *head(SERVER, "server"), of_server(0))
    recording.arrive(1, *head(CLIENT, "client"), window(0, SECOND + 1))
    recording.arrive(0, of_server(1))
    assert recording.windows(1) == []
    assert recording.told == [], "who is told starts a load, which is to be in both"
    recording.arrive(1, of_client(1))
    assert recording.told
    assert recording.windows(1) == [(1, 2)]
    recording.stream.close()


def test_a_client_s_window_that_had_no_room_at_once(recording: Recording) -> None:
    """It ended later there, and is taken to end with the server's."""
    recording.arrive(0, *head(SERVER, "server"), of_server(0))
    recording.arrive(1, *head(CLIENT, "client"), window(0, SECOND + 1))
    for number in (1, 2):
        recording.arrive(0, of_server(number))
        recording.arrive(1, window(number, (number + 1) * SECOND + 5))
    recording.stream.close()
    rows = {row.target_id: row for row in recording.rows(schema.Window)}  # the last of each
    assert (rows[2].start_ns, rows[2].end_ns) == (2 * SECOND, 3 * SECOND)
    assert (rows[1].start_ns, rows[1].end_ns) == (2 * SECOND, 3 * SECOND)


def test_a_client_that_ends_leaves_the_server(recording: Recording) -> None:
    begin(recording)
    recording.arrive(0, of_server(2))
    recording.arrive(1, of_client(2), *ended(ExitCode.TARGET), is_last=True)
    recording.arrive(0, of_server(3), *ended(), is_last=True)
    recording.stream.finish()
    recording.stream.close()
    assert recording.windows(1) == [(1, 2), (2, 3), (3, 4)]
    assert recording.windows(2) == [(2, 3)]
    assert recording.rows(schema.Gap) == [], "it is no loss that it ended"


def test_a_client_that_ends_before_its_first_window(recording: Recording) -> None:
    recording.arrive(0, *head(SERVER, "server"), of_server(0))
    recording.arrive(1, *head(CLIENT, "client"), of_client(0), *ended(4), is_last=True)
    recording.arrive(0, of_server(1), of_server(2), *ended(), is_last=True)
    recording.stream.finish()
    recording.stream.close()
    assert recording.windows(1) == [(1, 2), (2, 3)]
    assert recording.windows(2) == []
    assert [row.pid for row in recording.rows(schema.Target)] == [SERVER, CLIENT]


def test_why_the_recording_of_a_client_ended_is_told(recording: Recording) -> None:
    begin(recording)
    recording.arrive(1, *ended(ExitCode.HOST), is_last=True)
    recording.arrive(0, of_server(2), *ended(), is_last=True)
    recording.stream.finish()
    recording.stream.close()
    (gap,) = recording.rows(schema.Gap)
    assert (gap.target_id, gap.subject) == (2, "the end of its recording")
    assert gap.consequence == "process 4712 ended"


def test_a_client_that_cannot_be_attached_to(recording: Recording) -> None:
    """Nothing is recorded without it, and the reason is its own."""
    recording.arrive(0, *head(SERVER, "server"), of_server(0), *ended(ExitCode.TARGET))
    with pytest.raises(TlstaxError, match="process 4712 ended") as caught:
        recording.arrive(1, ended(ExitCode.TARGET)[0], is_last=True)
    assert caught.value.exit_code == ExitCode.TARGET
    assert recording.stream.is_read, "the capture could be written"
    recording.stream.close()
    assert list(recording.capture.parent.iterdir()) == []


def test_a_line_that_is_cut(recording: Recording) -> None:
    begin(recording)
    recording.parts[0].is_over = recording.parts[1].is_over = True
    with pytest.raises(TlstaxError, match="the line to db1 was cut") as caught:
        recording.stream.finish()
    recording.stream.close()
    assert caught.value.exit_code == ExitCode.IO
    assert recording.windows(1) == [(1, 2)]
    assert "the line to its host was cut" in {row.consequence for row in recording.rows(schema.Gap)}


def test_what_is_damaged_ends_the_client_only(recording: Recording) -> None:
    begin(recording)
    recording.arrive(1, ("CPU", b"x"), of_client(2), is_last=True)
    recording.arrive(0, of_server(2), *ended(), is_last=True)
    recording.stream.finish()
    recording.stream.close()
    assert recording.windows(1) == [(1, 2), (2, 3)]
    (gap,) = recording.rows(schema.Gap)
    assert "what no recorder writes" in gap.consequence


def test_how_a_client_is_asked_for() -> None:
    request = RecordRequest(Path("x"), False, 30.0, 1.0, 99, 64, may_be_traced=True, budget=0.05)
    few, many = (request.options_of_client(7, count) for count in (3, 1000))
    assert few == "--pid 7 --window 86400.000s --sample-hz 99 --slots 256 --traced"
    assert "--slots 4000" in many
    assert "--for" not in many
    assert "--budget" not in many

# SPDX-License-Identifier: GPL-2.0-only
"""Clients of a server on another host, recorded with it by the recorder there.

Their windows end with the server's: the recorder there sees to that, so it does not depend on the
line. The first windows begin where all of them were attached to. Nothing here waits for the line.
"""

from collections.abc import Sequence
from typing import Final

from tlstax import ExitCode
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.recording.by_recorder.live_stream import LivePart
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.stack_store import UnnamedFrames
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.facts import text_of
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.recording.stream.plan_file import PlanFileError
from tlstax.collectors.recording.stream.recorded_files import RecordedSymbolizer
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import StreamRows
from tlstax.collectors.recording.stream_recording import target_of
from tlstax.collectors.recording.target_rows import SERVER_ID
from tlstax.collectors.remote.connection import Connection

_ERROR: Final = definition().number("ERROR")
_ENDED: Final = (ExitCode.OK, ExitCode.TARGET)  # it was asked to, or the process ended


class RemotePeer:
    """One of them, which is attached to."""

    def __init__(self, connection: Connection, part: LivePart, number: int) -> None:
        """Read up to its first totals, which have arrived. `number`: in the stream, from 1.

        Raises TlstaxError if it could not be attached to, StreamError or PlanFileError if that
        cannot be read.
        """
        self._part, self._number = part, number
        self._error: Frame | None = None
        self._is_over = False  # no more windows follow
        self._why = ""  # its stream cannot be read
        self._rows: StreamRows | None = None
        try:
            self._replay = Replay(part, self._hear, number)
        except (StreamError, PlanFileError):
            if self._error is not None:
                raise connection.refusal(self._error) from None
            raise
        part.window_taken()
        self._target = target_of(self._replay)
        self._symbolizer = RecordedSymbolizer(self._replay, self._target)

    def _hear(self, frame: Frame) -> None:
        if frame.type == _ERROR:
            self._error = frame

    @property
    def own_cpu_ns(self) -> int:
        """CPU time of the recorder for it, by its last window."""
        return int(self._replay.window.own_cpu_ns)

    def cut(self, end_ns: int) -> list[Row]:
        """Its window that ends with the server's; [] after its end.

        The first time what describes it: what was recorded until then is in no window.
        """
        is_there = int(self._replay.window.end_ns) < end_ns and self._take()
        if self._rows is None:
            if is_there:
                self._replay.window.end_ns = end_ns
            self._rows = self._new_rows()
            return list(self._rows.begin())
        return self._rows.of_window(None, end_ns)[0] if is_there else []

    def _new_rows(self) -> StreamRows:
        target_id = SERVER_ID + self._number
        clocks = Clocks(self._replay)
        return StreamRows(self._replay, self._target, self._symbolizer, clocks, target_id)

    def _take(self) -> bool:
        """Read its next window, which has arrived; False: no more follow."""
        if self._is_over:
            return False
        try:
            is_there = self._replay.next_window()
        except StreamError as error:
            is_there, self._why = False, visible(str(error))
        self._part.window_taken()
        self._is_over = not is_there
        return is_there

    def end(self, unnamed: UnnamedFrames) -> list[Row]:
        """Everything has arrived: what its probes counted. Its frames are left to `unnamed`."""
        while self._take():
            pass  # the server's recording has ended before
        if self._rows is None:
            return []
        return self._rows.end_beside(unnamed, is_over=False, ending=self._trouble())

    def _trouble(self) -> str:
        """Why its recording ended early although the process did not end; "" if it did not."""
        replay = self._replay
        if self._why or replay.end is None:
            return self._why or "the line to its host was cut"
        is_end = int(replay.end.exit_code) in _ENDED or replay.error is None
        return "" if is_end else visible(text_of(replay.error.text))

    def close(self) -> None:
        """Close the files that names are looked up in."""
        self._symbolizer.close()


class RemotePeers:
    """All clients of one server; without any it does nothing."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        """In the order in which the recorder was told of them."""
        self._parts: Sequence[LivePart] = ()
        self._peers: list[RemotePeer] = []
        self._ended_ns = 0  # the end of the last windows

    def receive(self, parts: Sequence[LivePart]) -> None:
        """Where each of them arrives."""
        self._parts = parts

    @property
    def is_readable_to_a_window(self) -> bool:
        """Whether reading each up to its next window, or to its end, meets no gap."""
        return all(part.is_readable_to_a_window for part in self._parts)

    def discard(self) -> None:
        """Keep nothing of what still arrives."""
        for part in self._parts:
            part.discard()

    def begin(self, connection: Connection) -> None:
        """The recorder is attached to them, or was not. Raises as RemotePeer."""
        for number, part in enumerate(self._parts, 1):
            self._peers.append(RemotePeer(connection, part, number))

    @property
    def own_cpu_ns(self) -> int:
        """CPU time of the recorder for them."""
        return sum(peer.own_cpu_ns for peer in self._peers)

    def cut(self, end_ns: int) -> list[Row]:
        """Their windows that end with the server's. After an exec it has two with the same end."""
        if end_ns <= self._ended_ns:
            return []
        self._ended_ns = end_ns
        return [row for peer in self._peers for row in peer.cut(end_ns)]

    def end(self, unnamed: UnnamedFrames) -> list[Row]:
        """Everything has arrived: what their probes counted."""
        return [row for peer in self._peers for row in peer.end(unnamed)]

    def close(self) -> None:
        """Close the files that names are looked up in."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()


class AllClocks(Clocks):
    """CPU time of the recorder for all of them: it counts by whose turn it is."""

    def __init__(self, replay: Replay, peers: RemotePeers) -> None:
        super().__init__(replay)
        self._peers = peers

    def own_cpu_ns(self) -> int:
        """For the server and its clients."""
        return super().own_cpu_ns() + self._peers.own_cpu_ns

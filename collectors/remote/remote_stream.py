# SPDX-License-Identifier: GPL-2.0-only
"""What arrives of one process of another host, and its capture."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.capture.schema import Meta, Row
from tlstax.collectors.capture.writer import BUSY_SECONDS, CaptureWriter
from tlstax.collectors.recording.by_recorder.live_stream import LivePart
from tlstax.collectors.recording.programs.expected_cost import budget_summary
from tlstax.collectors.recording.stack_store import UnnamedFrames
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.facts import text_of
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.recording.stream.plan_file import PlanFileError
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_recording import StreamRecording
from tlstax.collectors.remote.connection import Connection, Tell
from tlstax.collectors.remote.remote_peers import AllClocks, RemotePeers

_ERROR: Final = definition().number("ERROR")
_PATIENCE_S: Final = 0.05


class RemoteStream:
    """A recording in progress."""

    def __init__(
        self,
        connection: Connection,
        pid: int,
        writer: CaptureWriter,
        tell: Tell,
        recording_id: str = "",
    ) -> None:
        """The capture is used or discarded. `recording_id`: of several servers."""
        self.pid = pid
        self.is_read = False
        """Whether no more windows follow."""
        self.peers = RemotePeers()
        """Its clients, which are in its capture."""
        self._connection, self._writer, self._tell = connection, writer, tell
        self._part, self._number, self._recording_id = LivePart(), 0, recording_id
        self._others: Callable[[], Sequence[int]] = tuple
        self._recording: StreamRecording | None = None
        self._error: Frame | None = None
        self._why = ""  # its stream cannot be read
        self._is_budget_told = self._has_peers = False
        self._is_closed = False

    def receive(self, part: LivePart, number: int, others: Callable[[], Sequence[int]]) -> None:
        """Where it arrives, by its number in the stream; `others`: pids that are recorded, too."""
        self._part, self._number, self._others = part, number, others

    def store(self) -> None:
        """Write the windows that have arrived whole.

        Raises TlstaxError: it could not be attached to, or the capture cannot be written.
        """
        while self._is_readable and not self.is_read:
            if self._recording is None:
                self._begin()
                continue
            rows = self._next_window(self._recording)
            if rows is None:
                self.is_read = True
                break
            # Whoever reads the capture meanwhile delays its windows only.
            self._writer.add(rows)
            self._writer.commit_if_free()
        if self._recording is not None and not self._is_closed:
            self._tell_budget(self._recording.replay)

    @property
    def _is_readable(self) -> bool:
        """Whether a whole window has arrived, of its clients, too; or the end."""
        return self._part.is_readable_to_a_window and self.peers.is_readable_to_a_window

    def _begin(self) -> None:
        """Write what stands once, and put the capture in its place."""
        try:
            replay = Replay(self._part, self._hear, self._number)
            self.peers.begin(self._connection)
        except (StreamError, PlanFileError) as error:
            self.is_read = True
            if self._error is not None:
                raise self._connection.refusal(self._error) from None
            self._why = str(error)
            why = f"{error}; {self._connection.said()}"
            raise self._cut(why, "nothing was recorded") from None
        except TlstaxError:  # one of its clients could not be attached to
            self.is_read = True
            raise
        self._part.window_taken()
        recording = StreamRecording(replay, partial(AllClocks, peers=self.peers))
        try:
            rows = recording.begin()
            if self._recording_id:
                rows.append(Meta("recording_id", self._recording_id))
            if others := self._others():
                rows.append(Meta("recorded_with", ", ".join(map(str, others))))
            self._writer.add(rows)
            self._writer.take_place()
            self._writer.set_patience(_PATIENCE_S)
        except BaseException:
            recording.close()
            raise
        self._recording = recording
        if not self.peers.pids:
            self._tell_attached()

    def _tell_attached(self) -> None:
        text = f"attached to {self.pid} on {self._connection.destination.name}"
        if pids := self.peers.pids:
            text += f", and to its client{'s' * (len(pids) > 1)} {', '.join(map(str, pids))}"
        self._tell(text)

    def _hear(self, frame: Frame) -> None:
        if frame.type == _ERROR:
            self._error = frame

    def _next_window(self, recording: StreamRecording) -> list[Row] | None:
        of_peers: list[Row] = []
        try:
            rows = recording.next_window(lambda end_ns: of_peers.extend(self.peers.cut(end_ns)))
        except StreamError as error:
            self._why = str(error)
            return None
        finally:
            self._part.window_taken()
        if rows is not None and self.peers.pids and not self._has_peers:
            self._has_peers = True  # from the next window on
            recording.expect_anew()
            self._tell_attached()
        return rows if rows is None else [*rows, *of_peers]

    def _tell_budget(self, replay: Replay) -> None:
        """Tell how a budget is used at once: its first window may be seconds long."""
        if self._is_budget_told:
            return
        if replay.budget is None and self._part.has_budget and not self._part.windows_count:
            try:
                replay.read_budget()
            except StreamError as error:
                self._why, self.is_read = str(error), True
                return
        if replay.budget is not None:
            self._is_budget_told = True
            if summary := budget_summary(replay.budget):
                self._tell(f"process {self.pid}: {summary}" if self._others() else summary)

    @property
    def is_broken(self) -> bool:
        """Whether it cannot be read on, so that it is recorded for nobody."""
        return bool(self._why)

    def leave_unread(self) -> None:
        """Keep nothing of what still arrives."""
        self._part.discard()
        self.peers.discard()

    @property
    def early_ending(self) -> str:
        """How it ended before it was asked to, as part of a sentence; "": it did not."""
        if self.is_broken:
            return f"what arrives of it cannot be read: {visible(self._why)}"
        if self._recording is None or self._error is None:
            return ""
        end = self._recording.replay.end
        return visible(text_of(end.ending)) if end is not None else "the recorder ended"

    def finish(self) -> None:
        """Everything has arrived: store the rest, name the frames. Raises TlstaxError."""
        if self._is_closed:
            return
        self.store()
        assert self._recording is not None
        if not self._why:
            self._writer.set_patience(BUSY_SECONDS)
            unnamed = UnnamedFrames()
            self._writer.add(self.peers.end(unnamed))
            self._writer.add(self._recording.end(unnamed))
        self._writer.close()
        replay, name = self._recording.replay, self._connection.destination.name
        until_then = f"{self._writer.path} is complete until then"
        if self._error is not None:
            refused = self._connection.refusal(self._error)
            what = f"the recording of process {self.pid} on {name} ended"
            raise TlstaxError(what, refused.why, until_then, refused.exit_code)
        if self._why or replay.end is None:
            why = self._why or replay.reading.why_ended or "the stream has no end"
            raise self._cut(f"{why}; {self._connection.said()}", until_then)

    def close(self) -> None:
        """Keep the windows that were committed; without any nothing is left of the capture."""
        if self._is_closed:
            return
        self._is_closed = self.is_read = True
        self.peers.close()
        if self._recording is None:
            self._writer.discard()
            return
        self._recording.close()
        with suppress(TlstaxError):  # it was told
            self._writer.close()

    def _cut(self, why: str, do: str) -> TlstaxError:
        name = self._connection.destination.name
        return TlstaxError(
            f"the line to {name} was cut while process {self.pid} was recorded",
            visible(why),
            do,
            ExitCode.IO,
        )

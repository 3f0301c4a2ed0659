# SPDX-License-Identifier: GPL-2.0-only
"""Records processes of another host by one recorder there, a capture for each of them here.

Windows are in the capture when they have arrived: `tlstax top` shows them, and they are there
whatever ends first. Names are looked up at the end.
"""

import os
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tlstax import TlstaxError
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.recording_facts import new_recording_id
from tlstax.collectors.process.thread_room import ROOM_FACTOR, ROOM_MOST, present_threads
from tlstax.collectors.recording.by_recorder.live_stream import LiveStream
from tlstax.collectors.recording.by_recorder.peers import ROOM_LEAST
from tlstax.collectors.remote.connection import Connection, LifeLine, Tell
from tlstax.collectors.remote.remote_plan import RemotePlan
from tlstax.collectors.remote.remote_stream import RemoteStream

_NO_END_OF_ITS_OWN_S: Final = 86400.0
"""Length of a client's window, which ends with the server's: a day."""


@dataclass(frozen=True)
class RecordRequest:
    """How to record."""

    output: Path
    overwrite: bool
    for_s: float | None  # None: until Ctrl-C
    window_s: float
    sample_hz: int
    slots_count: int | None  # None: by the threads that the process has
    may_be_traced: bool = False  # by a debugger or strace
    calibration_s: float | None = None  # at level flow, mean time between calibration stretches
    chooses_level: bool = False  # flow with stretches, or record, by what they would cost
    unwind_tables: bool = True  # walk user stacks by them; else by frame pointers
    budget: float | None = None  # share of the process's CPU time; None: no limit
    budget_is_default: bool = False  # if nothing fits, everything is recorded without a limit
    network_bits: tuple[int, int] | None = None  # of clients' addresses; None: no address at all

    def options_of_all(self, *, keeps_going: bool) -> str:
        """Those of the recorder that stand with the first process; "", or they end with a space.

        `keeps_going`: one that cannot be recorded is left out.
        """
        words = ["--keep-going "] if keeps_going else []
        words += [f"--for {self.for_s:.3f}s "] if self.for_s is not None else []
        return "".join(words)

    def options(self, pid: int, has_stretches: bool) -> str:
        """Those of the recorder for a process."""
        words = [f"--pid {pid} --window {self.window_s:.3f}s --sample-hz {self.sample_hz}"]
        if self.budget is not None:
            words.append(f"--budget {self.budget:%}")
        if has_stretches and self.calibration_s is not None:
            words.append(f"--calibrate {self.calibration_s:.3f}s")
            words += ["--choose-level"] if self.chooses_level else []
        words.append("--measure-cost")
        if self.budget_is_default:
            words.append("--or-everything")
        if self.network_bits is not None:
            words.append(f"--client-networks {','.join(map(str, self.network_bits))}")
        if self.slots_count is not None:
            words.append(f"--slots {self.slots_count}")
        if self.may_be_traced:
            words.append("--traced")
        return " ".join(words)

    def options_of_client(self, pid: int, threads_count: int) -> str:
        """Those of the recorder for a client of the server, which has so many threads."""
        slots_count = min(max(ROOM_LEAST, ROOM_FACTOR * threads_count), ROOM_MOST)
        words = [
            f"--pid {pid} --window {_NO_END_OF_ITS_OWN_S:.3f}s --sample-hz {self.sample_hz}",
            f"--slots {slots_count}",
        ]
        return " ".join([*words, *(["--traced"] if self.may_be_traced else [])])


def record_there(
    connection: Connection,
    made: RemotePlan,
    request: RecordRequest,
    tell: Tell,
    clients: Sequence[RemotePlan] = (),
) -> None:
    """Record one process, with its clients, and write the capture window by window.

    Raises TlstaxError; if something was recorded, the capture then has what was received.
    """
    failures: list[TlstaxError] = []
    with RemoteRecordings(connection, lambda _, error: failures.append(error), tell) as recordings:
        recordings.add(made, request)
        for client in clients:
            recordings.add_client(client, request)
        recordings.run()
    if failures:
        raise failures[0]


class RemoteRecordings:
    """Recordings of one recorder there. A context manager: what is unfinished then is closed."""

    def __init__(
        self,
        connection: Connection,
        failed: Callable[[int, TlstaxError], None],
        tell: Tell,
        *,
        keeps_going: bool = False,
    ) -> None:
        """`failed` is told of each that is not recorded, or not to its end, and why.

        `keeps_going`: such a one leaves the others; else nothing is recorded without it.
        """
        self._connection, self._failed, self._tell = connection, failed, tell
        self._keeps_going = keeps_going
        self._streams: list[RemoteStream] = []
        self._recording_id = new_recording_id() if keeps_going else ""
        self._is_unreadable = False  # nothing that arrives can be read
        self.is_unwritable = False
        """Whether a capture cannot be written: its server is recorded for nobody, so all end."""

    def add(self, made: RemotePlan, request: RecordRequest) -> None:
        """Create a capture, and ask for the recording. While the image of the process is there.

        Raises TlstaxError; then nothing of it is left.
        """
        is_first = not self._streams
        options = request.options_of_all(keeps_going=self._keeps_going) if is_first else ""
        options += request.options(made.target.pid, made.stretches is not None)
        asked = options, *_content(made, request)
        writer = CaptureWriter.create(request.output, request.overwrite)
        try:
            self._connection.add_target(*asked)
        except BaseException:
            writer.discard()
            raise
        pid = made.target.pid
        stream = RemoteStream(self._connection, pid, writer, self._tell, self._recording_id)
        self._streams.append(stream)

    def add_client(self, made: RemotePlan, request: RecordRequest) -> None:
        """Ask for a client of the only server, into its capture. While its image is there.

        Raises TlstaxError.
        """
        (server,) = self._streams
        pid = made.target.pid
        options = request.options_of_client(pid, present_threads(pid, made.target.proc))
        self._connection.add_target(options, *_content(made, request))
        server.peers.pids.append(pid)

    def run(self) -> None:
        """Record until all have ended, or the user ends it; then name the frames."""
        descriptor = self._connection.stream.fileno()
        servers_count = len(self._streams)
        clients_count = sum(len(stream.peers.pids) for stream in self._streams)
        with self._connection.record(together=clients_count > 0) as life:
            live = LiveStream(os.dup(descriptor), servers_count + clients_count - 1)

            def others(number: int) -> list[int]:
                pairs = zip(self._streams, live.parts[:servers_count], strict=True)
                return [
                    stream.pid
                    for place, (stream, part) in enumerate(pairs)
                    if place != number and part.failure is None
                ]

            try:
                for number, stream in enumerate(self._streams):
                    stream.receive(live.parts[number], number, partial(others, number))
                if clients_count:
                    self._streams[0].peers.receive(live.parts[servers_count:])
                ready = select.poll()
                ready.register(live, select.POLLIN)
                while not live.is_closed and not self._is_unreadable:
                    ready.poll()
                    live.fill()
                    self._store(life)
                for stream in self._streams:
                    self._try(stream, stream.finish)
            finally:
                live.close()

    def _store(self, life: LifeLine) -> None:
        for stream in self._streams:
            was_read = stream.is_read
            self._try(stream, stream.store)
            ending = "" if was_read or not stream.is_read else stream.early_ending
            if ending and any(not other.is_read for other in self._streams):
                text = f"process {stream.pid} is no longer recorded: {ending}; the others are"
                self._tell(text)
        broken = [stream for stream in self._streams if stream.is_broken]
        for stream in broken:
            stream.leave_unread()
        self._is_unreadable = bool(broken) and all(stream.is_read for stream in self._streams)
        if self.is_unwritable or self._is_unreadable:
            life.stop()

    def _try(self, stream: "RemoteStream", act: Callable[[], None]) -> None:
        try:
            act()
        except TlstaxError as error:
            self._failed(stream.pid, error)
            self.is_unwritable = self.is_unwritable or not stream.is_read
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in self._streams:
            stream.close()


def _content(made: RemotePlan, request: RecordRequest) -> tuple[bytes, bytes]:
    """The plan of a process, and its unwind tables."""
    return made.text().encode(), made.tables() if request.unwind_tables else b""

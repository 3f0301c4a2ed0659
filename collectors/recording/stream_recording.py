# SPDX-License-Identifier: GPL-2.0-only
"""Make a capture of a stream: the rows that a recording by tlstax itself would have.

Names are looked up here, in files of this host that have the build-ids of the recorded ones, and
in the names of the kernel's functions that the stream holds.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.cpu_facts import crypto_flags
from tlstax.collectors.host.recording_facts import privacy
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.programs.expected_cost import FLOOR_CPUS
from tlstax.collectors.recording.stack_store import UnnamedFrames
from tlstax.collectors.recording.stream.facts import engine_asked, text_of
from tlstax.collectors.recording.stream.plan_file import PlanFileError
from tlstax.collectors.recording.stream.recorded_files import RecordedSymbolizer, recorded_objects
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import StreamRows


def import_stream(
    stream: BinaryIO, name: str, capture: Path, overwrite: bool, target: int = 0
) -> str:
    """Write the capture of a stream's target; what was made, as a sentence.

    Raises TlstaxError (CAPTURE) if it is no stream, or holds what no recorder writes, and what
    `CaptureWriter.create` raises. A stream that was cut has the windows up to there.
    """
    try:
        replay = Replay(stream, target=target)
    except (StreamError, PlanFileError) as error:
        raise _unusable(name, str(error)) from None
    writer, windows_count = CaptureWriter.create(capture, overwrite), 0
    try:
        with writer, StreamRecording(replay) as recording:
            writer.add(recording.begin())
            while (rows := recording.next_window()) is not None:
                writer.add(rows)
                windows_count += 1
            writer.add(recording.end())
    except StreamError as error:
        writer.discard()
        raise _unusable(name, str(error)) from None
    except BaseException:
        writer.discard()
        raise
    text = f"{windows_count} windows of process {replay.pid}"
    if replay.end is None:
        text += f"; {name} has no end: {replay.reading.why_ended or 'it was cut'}"
    return text


class StreamRecording:
    """All rows of a stream's recording, in order. A context manager."""

    def __init__(self, replay: Replay, clocks: Callable[[Replay], Clocks] = Clocks) -> None:
        """The stream has been read up to its first totals. `clocks`: of all that records."""
        target = target_of(replay)
        self.replay = replay
        self._symbolizer = RecordedSymbolizer(replay, target)
        self._rows = StreamRows(replay, target, self._symbolizer, clocks(replay))

    def begin(self) -> list[schema.Row]:
        """What stands once."""
        return [*_facts(self.replay), *self._rows.begin()]

    def next_window(
        self, before_rows: Callable[[int], None] | None = None
    ) -> list[schema.Row] | None:
        """The next window; None: no more follow, and how it ended has been read.

        `before_rows` as in StreamRows. Raises StreamError.
        """
        found = self._rows.next_window(None, before_rows)
        return found[0] if found else None

    def expect_anew(self) -> None:
        """As of StreamRows."""
        self._rows.expect_anew()

    def end(self, unnamed: UnnamedFrames | None = None) -> list[schema.Row]:
        """What stands once at the end, with the names, which are looked up now.

        `unnamed`: frames of processes that were recorded with this one.
        """
        return [*self._rows.end(unnamed), *self._rows.facts()]

    def close(self) -> None:
        """Close the files that names are looked up in."""
        self._symbolizer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def target_of(replay: Replay) -> Target:
    """The process, as far as the stream and the files of this host tell."""
    plan_file = replay.plan_file
    return Target(
        replay.pid,
        plan_file.exe.rpartition("/")[2],
        plan_file.exe,
        int(replay.start.start_ticks),
        recorded_objects(replay.mappings, plan_file.objects),
        own_pid=int(replay.start.own_pid),
    )


def _facts(replay: Replay) -> Iterator[schema.Meta]:
    start = replay.start
    values: dict[str, object] = {
        "tlstax_version": __version__,
        "created_wall_ns": start.wall_ns,
        "monotonic_anchor_ns": start.monotonic_ns,
        "hostname": text_of(start.hostname),
        "kernel": text_of(start.kernel),
        "cpu_count": start.online_count,
        "cpu_model": text_of(start.cpu_model),
        "cpu_flags": crypto_flags(text_of(start.cpu_flags)),
        "engine": "native",
        "command_level": text_of(start.level),
        "socket_events": replay.socket_source,
        **engine_asked(replay, int(start.start_cpu_ns)),
        "effect_floor_cpus": f"{FLOOR_CPUS:g}",
    }
    values["privacy"] = privacy(values)
    for key, value in values.items():
        yield schema.Meta(key, str(value))


def _unusable(name: str, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot import {name}",
        why,
        "Name a stream of tlstax-recorder of this version",
        ExitCode.CAPTURE,
    )

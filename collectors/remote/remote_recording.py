# SPDX-License-Identifier: GPL-2.0-only
"""Receives the stream of a recorder on another host, and writes the capture as it comes.

Windows are in the capture when they have arrived: `tlstax top` shows them, and they are there
whatever ends first. Names are looked up at the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.capture.writer import BUSY_SECONDS, CaptureWriter
from tlstax.collectors.recording.programs.expected_cost import budget_summary
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame, record
from tlstax.collectors.recording.stream.plan_file import PlanFileError
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import recording_parts
from tlstax.collectors.remote.connection import Connection, Tell
from tlstax.collectors.remote.remote_plan import RemotePlan

_NUMBERS: Final = definition()
_BUDGET, _ERROR, _END = (_NUMBERS.number(name) for name in ("BUDGET", "ERROR", "END"))
_PATIENCE_S: Final = 0.05


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

    def options(self, pid: int, has_stretches: bool) -> str:
        """Those of the recorder."""
        words = [f"--pid {pid} --window {self.window_s:.3f}s --sample-hz {self.sample_hz}"]
        if self.for_s is not None:
            words.append(f"--for {self.for_s:.3f}s")
        if self.budget is not None:
            words.append(f"--budget {self.budget:%}")
        if has_stretches and self.calibration_s is not None:
            words.append(f"--calibrate {self.calibration_s:.3f}s")
            words += ["--choose-level"] if self.chooses_level else []
        if self.budget_is_default:
            words.append("--or-everything")
        if self.slots_count is not None:
            words.append(f"--slots {self.slots_count}")
        if self.may_be_traced:
            words.append("--traced")
        return " ".join(words)


class _Heard:
    """What a stream says of itself, besides its windows."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.error: Frame | None = None
        self.has_end = False

    def __call__(self, frame: Frame) -> None:
        """Tell how a budget is used at once: its first window may be seconds long."""
        if frame.type == _BUDGET:
            if summary := budget_summary(record("budget", frame.content)):
                self._tell(summary)
        elif frame.type == _ERROR:
            self.error = frame
        self.has_end = self.has_end or frame.type == _END


def record_there(
    connection: Connection, made: RemotePlan, request: RecordRequest, tell: Tell
) -> None:
    """Record, and write the capture window by window.

    Raises TlstaxError; if something was recorded, the capture then has what was received.
    """
    pid, name = made.target.pid, connection.destination.name
    heard, why, is_begun = _Heard(tell), "", False
    options, text = request.options(pid, made.stretches is not None), made.text().encode()
    tables = made.tables() if request.unwind_tables else b""
    writer = CaptureWriter.create(request.output, request.overwrite)
    try:
        with writer, connection.record(options, text, tables):
            replay, parts = _begin(connection, heard, writer, pid)
            is_begun = True
            tell(f"attached to {pid} on {name}")
            try:
                _write(parts, writer)
            except StreamError as error:
                why = str(error)
    except BaseException:
        if not is_begun:
            writer.discard()
        raise
    until_then = f"{request.output} is complete until then"
    if heard.error is not None:
        refused = connection.refusal(heard.error)
        what = f"the recording of process {pid} on {name} ended"
        raise TlstaxError(what, refused.why, until_then, refused.exit_code)
    if why or not heard.has_end:
        why = why or replay.reading.why_ended or "the stream has no end"
        raise _cut(name, pid, f"{why}; {connection.said()}", until_then)


def _begin(
    connection: Connection, heard: _Heard, writer: CaptureWriter, pid: int
) -> tuple[Replay, Iterator[list[Row]]]:
    """Write what stands once, and put the capture in its place. Raises TlstaxError."""
    try:
        replay = Replay(connection.stream, heard)
    except (StreamError, PlanFileError) as error:
        if heard.error is not None:
            raise connection.refusal(heard.error) from None
        why = f"{error}; {connection.said()}"
        raise _cut(connection.destination.name, pid, why, "nothing was recorded") from None
    parts = recording_parts(replay)
    writer.add(next(parts))
    writer.take_place()
    return replay, parts


def _write(parts: Iterator[list[Row]], writer: CaptureWriter) -> None:
    """Write what arrives. Whoever reads the capture meanwhile delays its windows only."""
    writer.set_patience(_PATIENCE_S)
    try:
        for rows in parts:
            writer.add(rows)
            writer.commit_if_free()
    finally:
        writer.set_patience(BUSY_SECONDS)


def _cut(name: str, pid: int, why: str, do: str) -> TlstaxError:
    return TlstaxError(
        f"the line to {name} was cut while process {pid} was recorded",
        visible(why),
        do,
        ExitCode.IO,
    )

# SPDX-License-Identifier: GPL-2.0-only
"""Receives the stream of a recorder on another host, and makes a capture of it.

The stream is kept beside the capture until that is made. So what was received is there, whatever
ends first: `tlstax import` reads it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.recording.programs.expected_cost import budget_summary
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame, Reading, read_frames
from tlstax.collectors.recording.stream.totals import budget_of
from tlstax.collectors.recording.stream_capture import import_stream
from tlstax.collectors.remote.connection import Connection, Tell
from tlstax.collectors.remote.remote_plan import RemotePlan

_NUMBERS: Final = definition()
_BUDGET, _WINDOW, _ERROR, _END = (
    _NUMBERS.number(name) for name in ("BUDGET", "WINDOW", "ERROR", "END")
)


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


class _Kept:
    """Writes what is read to a file, too."""

    def __init__(self, source: IO[bytes], file: IO[bytes]) -> None:
        self._source, self._file = source, file

    def read(self, size: int) -> bytes:
        """As the source; what was read is in the file at once."""
        content = self._source.read(size)
        self._file.write(content)
        return content


def stream_path(output: Path) -> Path:
    """Where the stream of a capture is kept until the capture is made."""
    return output.with_name(f"{output.name}.stream")


def record_there(
    connection: Connection, made: RemotePlan, request: RecordRequest, tell: Tell
) -> None:
    """Record, and write the capture. Raises TlstaxError; the capture then has what was received."""
    pid, name = made.target.pid, connection.destination.name
    path = stream_path(request.output)
    _require_new(request.output, request.overwrite)
    text = made.text().encode()
    with _create(path) as file:
        try:
            line = connection.record(request.options(pid, made.stretches is not None), text)
        except BaseException:
            path.unlink()
            raise
        with line:
            error, windows_count, why = _receive(connection, file, tell, pid)
    if not windows_count:
        path.unlink()
        if error is not None:
            raise connection.refusal(error)
        raise _cut(name, pid, why or connection.said(), "nothing was recorded")
    with path.open("rb") as stream:
        import_stream(stream, str(path), request.output, request.overwrite)
    path.unlink()
    if error is not None:
        refused = connection.refusal(error)
        what, do = f"the recording of process {pid} on {name} ended", _until_then(request.output)
        raise TlstaxError(what, refused.why, do, refused.exit_code)
    if why:
        raise _cut(name, pid, why, _until_then(request.output))


def _receive(
    connection: Connection, file: IO[bytes], tell: Tell, pid: int
) -> tuple[Frame | None, int, str]:
    """Read to the end: the recorder's error, the windows, and why there is no end ("")."""
    reading, error, windows_count, has_end = Reading(), None, 0, False
    for frame in read_frames(_Kept(connection.stream, file), reading):
        if frame.type == _WINDOW:
            windows_count += 1
            if windows_count == 1:
                tell(f"attached to {pid} on {connection.destination.name}")
        elif frame.type == _BUDGET:
            try:
                summary = budget_summary(budget_of(frame.content))
            except ValueError as strange:
                return error, windows_count, f"it sent what no recorder sends: {strange}"
            if summary:
                tell(summary)
        elif frame.type == _ERROR:
            error = frame
        has_end = has_end or frame.type == _END
    said = "" if has_end else f"{reading.why_ended or 'the stream has no end'}; {connection.said()}"
    return error, windows_count, said.removesuffix("; ")


def _require_new(output: Path, overwrite: bool) -> None:
    """Raise TlstaxError (USAGE) if the capture exists, before anything is recorded."""
    if output.exists() and not overwrite:
        raise TlstaxError(
            f"cannot write {output}",
            "the file exists",
            "Choose another name, or give --force",
            ExitCode.USAGE,
        )


def _create(path: Path) -> IO[bytes]:
    """An empty file without a buffer, for nobody else. Raises TlstaxError (IO)."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return open(os.open(path, flags, 0o600), "wb", buffering=0)
    except OSError as error:
        raise TlstaxError(
            f"cannot write {path}",
            error.strerror or str(error),
            "If it is left of a recording that was killed, `tlstax import` reads it",
            ExitCode.IO,
        ) from error


def _until_then(output: Path) -> str:
    return f"{output} is complete until then"


def _cut(name: str, pid: int, why: str, do: str) -> TlstaxError:
    return TlstaxError(
        f"the line to {name} was cut while process {pid} was recorded",
        visible(why),
        do,
        ExitCode.IO,
    )

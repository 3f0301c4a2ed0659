# SPDX-License-Identifier: GPL-2.0-only
"""A recorder on another host, at the other end of the user's ssh.

One session does all: the recorder is copied, answers requests, and records. Whichever end dies, or
the line between them, the other one sees its input end.
"""

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture.printable import visible, warn
from tlstax.collectors.host.executable import MACHINES, age_warning, recorder_path
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame, Reading, read_frames, record
from tlstax.collectors.remote.destination import Destination
from tlstax.collectors.remote.script import OTHER_MACHINE, script

_NUMBERS: Final = definition()
FACT: Final = _NUMBERS.number("FACT")
_ANSWERED: Final = _NUMBERS.number("ANSWERED")
_ERROR: Final = _NUMBERS.number("ERROR")
_BEAT_S: Final = 1.0
_END_S: Final = 5.0
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAID_BYTES: Final = 2000
_REQUEST_MOST: Final = 4096  # LINE_MOST of collectors/recorder/serve.c


class OtherMachineError(TlstaxError):
    """The host is of another architecture than the recorder."""

    def __init__(self, name: str, why: str, machine: str) -> None:
        super().__init__(
            f"{name} cannot be recorded",
            why,
            "Use tlstax for hosts of x86_64 and aarch64",
            ExitCode.HOST,
        )
        self.machine = machine


def connect(destination: Destination) -> "Connection":
    """A connection with the recorder for that host: this host's own is tried first.

    The user is told of one that is older than its sources. Raises TlstaxError (HOST).
    """
    if destination.recorder:  # for whatever machine that is
        return Connection(destination, None)
    try:
        return _with_copy(destination, os.uname().machine)
    except OtherMachineError as other:
        if other.machine not in MACHINES:
            raise
        return _with_copy(destination, other.machine)


def _with_copy(destination: Destination, machine: str) -> "Connection":
    path = recorder_path(machine)
    warning = ""
    with suppress(OSError):  # it is being built
        warning = age_warning(path, f"the recorder for {machine}")
    made = Connection(destination, path, machine)
    if warning:
        warn(warning)
    return made


class Connection:
    """A context manager; at its end nothing runs on the other host."""

    def __init__(
        self, destination: Destination, recorder: Path | None, machine: str = "x86_64"
    ) -> None:
        """Log in and start the recorder, which is for a machine. None: one is installed there.

        Raises OtherMachineError if the host is another one, else TlstaxError (HOST).
        """
        self.destination = destination
        self.can_be_asked = True
        """Whether the last answer was read to its end, and another one can be asked for."""
        self._reading = Reading()
        program = recorder.read_bytes() if recorder else b""
        command = destination.command(script(destination, len(program), machine))
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        try:
            self._ssh = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                preexec_fn=_ignore_interrupts,
            )
        except OSError as error:
            self._said.close()
            raise self._failure(f"ssh cannot be started: {error.strerror}") from error
        assert self._ssh.stdin is not None
        assert self._ssh.stdout is not None
        self._to: IO[bytes] = self._ssh.stdin
        self.stream: IO[bytes] = self._ssh.stdout
        self._frames = read_frames(self.stream, self._reading)
        try:
            self._send(program)
            self._greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session: the recorder sees its input end."""
        for file in (self._to, self.stream):
            with suppress(OSError):  # what was not sent has no reader any more
                file.close()
        try:
            self._ssh.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        self._said.close()

    def ask(self, request: str, content: bytes = b"") -> Iterator[Frame]:
        """The frames that answer a request, which may be followed by content.

        Raises TlstaxError: what the recorder says, or HOST if the line was cut.
        """
        if "\n" in request or "\0" in request or len(request) >= _REQUEST_MOST:
            raise TlstaxError(
                f"cannot ask {self.destination.name} for {visible(request[:60])}",
                "a request is one line of at most 4,095 characters",
                "Give a name without a line break",
                ExitCode.USAGE,
            )
        self.can_be_asked = False
        self._send(f"{request}\n".encode(errors="surrogateescape") + content)
        for frame in self._frames:
            if frame.type == _ANSWERED:
                self.can_be_asked = True
                return
            if frame.type == _ERROR:
                refused = self.refusal(frame)
                self.can_be_asked = refused.exit_code == ExitCode.TARGET
                raise refused
            yield frame
        raise self._failure(self._why_ended())

    def refusal(self, frame: Frame) -> TlstaxError:
        """The error of an ERROR frame."""
        try:
            error = record("error", frame.content)
        except ValueError as damaged:
            return self._failure(f"it sent what no recorder sends: {damaged}")
        known = {int(code) for code in ExitCode if code}  # 0 is no error's
        code = int(error.exit_code) if int(error.exit_code) in known else ExitCode.FAILED
        text = visible(error.text.decode(errors="replace"))
        return TlstaxError(
            f"{self.destination.name} refused it",
            text,
            "Correct that, or look at docs/agentless.md",
            ExitCode(code),
        )

    def add_target(self, options: str, plan: bytes, tables: bytes) -> None:
        """Tell the recorder of a process that is to be recorded, the first or one more.

        `tables`: the unwind tables; b"": callers are found by frame pointers. Raises as `ask`.
        """
        for _ in self.ask(f"target {len(plan)} {len(tables)} {options}", plan + tables):
            pass

    def record(self, *, together: bool = False) -> "LifeLine":
        """Ask for the recording, which `stream` holds from now on; what keeps it going.

        `together`: windows of all processes end with those of the first, and so does the recording.
        Raises TlstaxError (HOST) if the line was cut.
        """
        self._send(b"record together\n" if together else b"record\n")
        return LifeLine(self._to.fileno())

    def said(self) -> str:
        """What ssh, the shell and the recorder wrote last to standard error, as one sentence."""
        self._said.flush()
        size = os.fstat(self._said.fileno()).st_size
        last = os.pread(self._said.fileno(), _SAID_BYTES, max(0, size - _SAID_BYTES))
        lines = [line.strip() for line in last.decode(errors="replace").splitlines()]
        return visible("; ".join(line.rstrip(".") for line in lines[-3:] if line))

    def _send(self, content: bytes) -> None:
        try:
            self._to.write(content)
            self._to.flush()
        except OSError:
            raise self._failure(self._why_ended()) from None

    def _greet(self) -> None:
        """Read the first frame, which says what runs there."""
        first = next(self._frames, None)
        if first is None or first.type != FACT:
            raise self._failure(self._why_ended())
        version = first.content.rpartition(b"recorder")[2].decode(errors="replace")
        if version != __version__:
            raise self._failure(f"its recorder has version {visible(version)}")

    def _why_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._ssh.wait(_END_S)
        if self._reading.why_ended == "it is no stream":
            return "its shell writes text at login, or another program answered"
        if self._reading.why_ended and not self.said():
            return f"the stream of its recorder cannot be read: {self._reading.why_ended}"
        return self.said() or f"ssh ended with status {self._ssh.poll()}"

    def _failure(self, why: str) -> TlstaxError:
        name = self.destination.name
        if other := OTHER_MACHINE.search(why):
            return OtherMachineError(name, why, other[1])
        return TlstaxError(
            f"{name} cannot be recorded",
            why,
            f"Try `ssh {name} true`; docs/agentless.md says what the host needs",
            ExitCode.HOST,
        )


class LifeLine:
    """Tells the recorder that somebody still wants the recording. Ctrl-Z does not silence it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "LifeLine":
        self._before = {
            number: signal.signal(number, lambda *_: self.stop())
            for number in _ENDING
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # as by nohup
        }
        self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """End the recording in order."""
        self._write(b"s")

    def _beat(self) -> None:
        while not self._is_over.wait(_BEAT_S):
            self._write(b".")

    def _write(self, content: bytes) -> None:
        try:
            os.write(self._descriptor, content)
        except OSError:
            self._is_over.set()  # ssh has ended, which its output shows


def _ignore_interrupts() -> None:
    """The whole foreground gets them: the recording ends in order while ssh still runs."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)


Tell = Callable[[str], None]

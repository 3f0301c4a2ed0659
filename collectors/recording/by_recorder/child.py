# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder as a child of this process.

Plan and unwind tables are passed as files in memory, so nothing is left on a disk. The child has a
process group of its own: Ctrl-C reaches this process, which ends the recording in order. If this
process is killed, the pipe has no reader, and the recorder detaches.
"""

import os
import select
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tlstax import ExitCode
from tlstax.collectors.host.executable import NAME, recorder_path
from tlstax.collectors.recording.by_recorder.live_stream import LivePart, LiveStream

_QUEUE: Final = "64M"  # while the capture cannot be written; it takes memory only then
_SAID_MOST: Final = 1 << 16


class ChildTarget(NamedTuple):
    """What the recorder is told of one process."""

    plan_text: str
    tables: bytes | None
    arguments: Sequence[str]


class RecorderChild:
    """A running recorder, and its stream: that of the first process, if it records several."""

    def __init__(
        self,
        plan_text: str,
        tables: bytes | None,
        arguments: Sequence[str],
        program: Path | None = None,
        others: Sequence[ChildTarget] = (),
    ) -> None:
        """Start it, or another executable. Raises TlstaxError (HOST) if it was not built.

        `others`: further processes. Each has a part of this child (`parts`).
        """
        program = program or recorder_path()
        self.number = 0  # of the first process, in the stream
        plans: list[int] = []
        self._tables: list[int] = []  # -1: a process has none
        command = [str(program), "--queue", _QUEUE]
        try:
            for target in (ChildTarget(plan_text, tables, arguments), *others):
                plan = target.plan_text.encode("utf-8", "surrogateescape")
                plans.append(_in_memory("plan", plan))
                command += ["--next"] * (len(plans) > 1)
                command += ["--plan", f"/proc/self/fd/{plans[-1]}", *target.arguments]
                self._tables.append(_in_memory("unwind", target.tables) if target.tables else -1)
                if target.tables:
                    command += ["--tables", f"/proc/self/fd/{self._tables[-1]}"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if "--control" in arguments else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[*plans, *(tables for tables in self._tables if tables >= 0)],
                process_group=0,
            )
        except BaseException:
            self._close_tables()
            raise
        finally:
            for descriptor in plans:
                os.close(descriptor)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pipe = LiveStream(os.dup(self._process.stdout.fileno()), len(others))
        self.stream: LivePart = self._pipe
        self.parts = tuple(ChildPart(self, 1 + number) for number in range(len(others)))
        """Of the other processes."""
        self._process.stdout.close()
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._said = b""
        self._ready = select.poll()
        self._ready.register(self._pipe, select.POLLIN)
        self.status: int | None = None
        """Its exit status, once it was closed."""

    def stream_of(self, number: int) -> LivePart:
        """That of a process, from 0."""
        return self._pipe.parts[number]

    def fileno(self) -> int:
        """For poll(): readable when something has arrived."""
        return self._pipe.fileno()

    def wake_on(self, descriptor: int) -> None:
        """End a wait when `descriptor` becomes readable."""
        self._ready.register(descriptor, select.POLLIN)

    def wait(self, time_ms: float) -> bool:
        """Take what arrives in this time; whether that, and not another event, ended the wait."""
        ready = [descriptor for descriptor, _ in self._ready.poll(time_ms)]
        if self._pipe.fileno() in ready:
            self._pipe.fill()
        if self._pipe.is_closed:
            with suppress(KeyError):  # a pipe that was closed is always ready
                self._ready.unregister(self._pipe)
        self._listen()
        return not ready or ready == [self._pipe.fileno()]

    def take(self) -> None:
        """Take what has arrived, without waiting."""
        while not self._pipe.is_closed and self._pipe.fill():
            pass

    def _listen(self) -> None:
        """Take what it says, so that its pipe does not become full."""
        with suppress(BlockingIOError):
            while (found := os.read(self._stderr.fileno(), 4096)) and len(self._said) < _SAID_MOST:
                self._said += found

    @property
    def is_read(self) -> bool:
        """Whether all that it wrote has been taken."""
        return self._pipe.is_closed

    @property
    def said(self) -> str:
        """The last line that it said, without its own name."""
        lines = self._said.decode("utf-8", "replace").splitlines()
        return lines[-1].removeprefix(f"{NAME}: ") if lines else "it said nothing"

    def replace_tables(self, content: bytes, number: int = 0) -> None:
        """Give it more unwind tables; it looks for them at the end of a window."""
        os.pwrite(self._tables[number], content, 0)

    def cut(self, end_ns: int) -> None:
        """Let the present window end then; one that ended since is enough. With --control."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            os.write(self._process.stdin.fileno(), f"cut {end_ns}\n".encode("ascii"))

    def end(self) -> None:
        """Let it end the recording in order; the rest of the stream follows."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def close(self) -> int:
        """Wait until it has ended; its exit status. A stream that was not read is lost."""
        self._pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.status = status = self._process.wait()
        if not self._stderr.closed:
            self._listen()
            self._stderr.close()
            self._close_tables()
        return status

    def _close_tables(self) -> None:
        for tables in self._tables:
            if tables >= 0:
                os.close(tables)
        self._tables.clear()


class ChildPart:
    """A recorder's further process. The recording ends with that of the first."""

    def __init__(self, child: RecorderChild, number: int) -> None:
        self._child, self.number = child, number
        self.stream = child.stream_of(number)

    def wake_on(self, descriptor: int) -> None:
        """End a wait when `descriptor` becomes readable."""
        self._child.wake_on(descriptor)

    def wait(self, time_ms: float) -> bool:
        """Take what arrives in this time; whether that, and not another event, ended the wait."""
        return self._child.wait(time_ms)

    def take(self) -> None:
        """Take what has arrived, without waiting."""
        self._child.take()

    @property
    def said(self) -> str:
        """Why the recording of this process failed, or the last line that the recorder said."""
        return self.stream.failure[1] if self.stream.failure else self._child.said

    def replace_tables(self, content: bytes) -> None:
        """Give it more unwind tables; it looks for them at the end of a window."""
        self._child.replace_tables(content, self.number)

    def cut(self, end_ns: int) -> None:
        """Let the present window end then, as those of all processes."""
        self._child.cut(end_ns)

    def end(self) -> None:
        """Nothing: its recording ends with the process, or with that of the first one."""

    def close(self) -> int:
        """Nothing; the exit code of a recording of this process that failed, else 0."""
        return self.stream.failure[0] if self.stream.failure else ExitCode.OK


class ServerPart(ChildPart):
    """One of several servers that a recorder records. Its recording ends with that of all."""

    def close(self) -> int:
        """Nothing; the exit status that a recorder of this server alone would have."""
        if self.stream.failure or self.stream.has_end:
            return super().close()
        return self._child.status or ExitCode.FAILED  # it was killed


def _in_memory(name: str, content: bytes) -> int:
    """A descriptor of a file that is only in memory."""
    descriptor = os.memfd_create(f"tlstax-{name}", os.MFD_CLOEXEC)
    try:
        with open(os.dup(descriptor), "wb") as file:
            file.write(content)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor

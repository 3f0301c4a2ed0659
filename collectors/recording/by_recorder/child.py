# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder as a child of this process.

Plan and unwind tables are passed as files in memory, so nothing is left on a disk. The child has a
process group of its own: Ctrl-C reaches this process, which ends the recording in order. If this
process is killed, the pipe has no reader, and the recorder detaches.
"""

import os
import select
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax.collectors.host.executable import NAME, recorder_path
from tlstax.collectors.recording.by_recorder.live_stream import LiveStream

_QUEUE: Final = "64M"  # while the capture cannot be written; it takes memory only then
_SAID_MOST: Final = 1 << 16


class RecorderChild:
    """A running recorder, and its stream."""

    def __init__(
        self,
        plan_text: str,
        tables: bytes | None,
        arguments: list[str],
        program: Path | None = None,
    ) -> None:
        """Start it, or another executable. Raises TlstaxError (HOST) if it was not built."""
        program = program or recorder_path()
        plan = _in_memory("plan", plan_text.encode("utf-8", "surrogateescape"))
        self._tables = _in_memory("unwind", tables) if tables else -1
        passed = [plan, *([self._tables] if tables else [])]
        command = [str(program), "--plan", f"/proc/self/fd/{plan}", "--queue", _QUEUE, *arguments]
        if tables:
            command += ["--tables", f"/proc/self/fd/{self._tables}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if "--control" in arguments else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=passed,
                process_group=0,
            )
        except BaseException:
            self._close_tables()
            raise
        finally:
            os.close(plan)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stream = LiveStream(os.dup(self._process.stdout.fileno()))
        self._process.stdout.close()
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._said = b""
        self._ready = select.poll()
        self._ready.register(self.stream, select.POLLIN)

    def wake_on(self, descriptor: int) -> None:
        """End a wait when `descriptor` becomes readable."""
        self._ready.register(descriptor, select.POLLIN)

    def wait(self, time_ms: float) -> bool:
        """Take what arrives in this time; whether that, and not another event, ended the wait."""
        ready = [descriptor for descriptor, _ in self._ready.poll(time_ms)]
        if self.stream.fileno() in ready:
            self.stream.fill()
        if self.stream.is_over:
            with suppress(KeyError):  # a pipe that was closed is always ready
                self._ready.unregister(self.stream)
        self._listen()
        return not ready or ready == [self.stream.fileno()]

    def _listen(self) -> None:
        """Take what it says, so that its pipe does not become full."""
        with suppress(BlockingIOError):
            while (found := os.read(self._stderr.fileno(), 4096)) and len(self._said) < _SAID_MOST:
                self._said += found

    @property
    def said(self) -> str:
        """The last line that it said, without its own name."""
        lines = self._said.decode("utf-8", "replace").splitlines()
        return lines[-1].removeprefix(f"{NAME}: ") if lines else "it said nothing"

    def replace_tables(self, content: bytes) -> None:
        """Give it more unwind tables; it looks for them at the end of a window."""
        os.pwrite(self._tables, content, 0)

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
        self.stream.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        status = self._process.wait()
        if not self._stderr.closed:
            self._listen()
            self._stderr.close()
            self._close_tables()
        return status

    def _close_tables(self) -> None:
        if self._tables >= 0:
            os.close(self._tables)
            self._tables = -1


def _in_memory(name: str, content: bytes) -> int:
    """A descriptor of a file that is only in memory."""
    descriptor = os.memfd_create(f"tlstax-{name}", os.MFD_CLOEXEC)
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    return descriptor

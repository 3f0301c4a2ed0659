# SPDX-License-Identifier: GPL-2.0-only
"""Whether the target still runs the planned program, and how it ended."""

import os
import select
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.find_process import open_pidfd
from tlstax.collectors.process.target import Target, still_runs


class ExitWatch:
    """Waits for the end of a process, or for another event that ends the wait."""

    def __init__(self, pid: int) -> None:
        """Raises TlstaxError (TARGET) if there is no such process."""
        self._pidfd = open_pidfd(pid)
        self._ready = select.poll()
        self._ready.register(self._pidfd, select.POLLIN)

    def wake_on(self, fd: int) -> None:
        """End a wait when `fd` becomes readable."""
        self._ready.register(fd, select.POLLIN)

    def wait(self, time_ms: int) -> tuple[bool, bool]:
        """Wait at most `time_ms`: whether the process has ended, and whether anything is ready."""
        ready = [fd for fd, _ in self._ready.poll(time_ms)]
        return self._pidfd in ready, bool(ready)

    def close(self) -> None:
        """Stop watching."""
        os.close(self._pidfd)


def require_same_program(target: Target) -> None:
    """Raise TlstaxError if the process ended or executed a program since the plan was made."""
    if not still_runs(target):
        raise TlstaxError(
            f"process {target.pid} changed while the probes were attached",
            f"it ended, or it executed {program_of(target.pid)}",
            "look up the server's pid and attach again",
            ExitCode.TARGET,
        )


def program_of(pid: int) -> str:
    """The program that the process runs now, as part of a sentence; control characters escaped."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return "another program"
    return path if path.isprintable() else ascii(path)


def ended_error(pid: int, ending: str, capture: Path) -> TlstaxError:
    """The error for a process that ended during its recording; the capture is valid until then."""
    return TlstaxError(
        f"process {pid} ended while it was recorded",
        ending,
        f"{capture} is complete until then; "
        "check the server's error log, then attach to the new process",
        ExitCode.TARGET,
    )

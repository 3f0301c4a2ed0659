# SPDX-License-Identifier: GPL-2.0-only
"""Whether the target is still the program that was planned, and how it ended."""

import os
import select
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.find_process import open_pidfd
from tlstax.collectors.process.target import Target, still_runs


class ExitWatch:
    """Waits for the end of a process, or for whatever else is to end the wait."""

    def __init__(self, pid: int) -> None:
        """Raises TlstaxError (TARGET) if there is no such process."""
        self._pidfd = open_pidfd(pid)
        self._ready = select.poll()
        self._ready.register(self._pidfd, select.POLLIN)

    def wake_on(self, fd: int) -> None:
        """End a wait at once when there is something to read from `fd`."""
        self._ready.register(fd, select.POLLIN)

    def wait(self, time_ms: int) -> tuple[bool, bool]:
        """Wait at most `time_ms`: whether the process has ended, and whether anything is ready."""
        ready = [fd for fd, _ in self._ready.poll(time_ms)]
        return self._pidfd in ready, bool(ready)

    def close(self) -> None:
        """Watch no more."""
        os.close(self._pidfd)


def require_same_program(target: Target) -> None:
    """Raise TlstaxError when the process executed or ended between the plan and the probes."""
    if not still_runs(target):
        raise TlstaxError(
            f"process {target.pid} changed while the probes were attached",
            f"it ended, or it executed {program_of(target.pid)}",
            "look up the server's pid, and attach again",
            ExitCode.TARGET,
        )


def program_of(pid: int) -> str:
    """What the process runs now, as part of a sentence; control characters are escaped."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return "another program"
    return path if path.isprintable() else ascii(path)


def ended_error(pid: int, ending: str, capture: Path) -> TlstaxError:
    """The error that says how a recorded process ended, and that its capture is good until then."""
    return TlstaxError(
        f"process {pid} ended while it was recorded",
        ending,
        f"{capture} is complete until then; "
        "look at the server's error log, and attach to the process that runs now",
        ExitCode.TARGET,
    )

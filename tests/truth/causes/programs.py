# SPDX-License-Identifier: GPL-2.0-only
"""Programs that run while a cause is recorded, ahead of everything else on the host."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tlstax.workloads.servers.programs import SEARCH_PATH

AHEAD = -19
HERE = Path(__file__).parent


def ahead(pid: int) -> None:
    """Let a process, and all that it will start, run before others; where the host allows it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(AHEAD))
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), AHEAD)


@contextmanager
def ahead_ourselves() -> Iterator[None]:
    """The recorder too: it shares two CPUs with what it records, and must cut its windows."""
    group = Path("/proc/self/autogroup")
    before = group.read_text().rpartition("nice ")[2].strip() if group.exists() else "0"
    ahead(os.getpid())
    try:
        yield
    finally:
        with suppress(OSError):
            group.write_text(before)
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), 0)


@contextmanager
def started(command: Sequence[str], **how: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A program in a session of its own, for as long as the context."""
    process = subprocess.Popen(command, start_new_session=True, **how)  # type: ignore[call-overload]
    try:
        ahead(process.pid)
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@contextmanager
def ready(name: str, *arguments: object, namespace: str = "") -> Iterator[None]:
    """A program of this directory that has said that it is ready; in a network namespace."""
    where = ["ip", "netns", "exec", namespace] if namespace else []
    command = [*where, "python3", "-I", str(HERE / name), *map(str, arguments)]
    with started(command, env={"PATH": SEARCH_PATH}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield

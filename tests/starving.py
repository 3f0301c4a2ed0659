# SPDX-License-Identifier: GPL-2.0-only
"""A process that gets no CPU for as long as a test wants."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOOPS, AHEAD = 3, -10


def tasks_of(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


@contextmanager
def starving(pid: int) -> Iterator[None]:
    """All threads of a process on a CPU that loops want, which weigh 3,000 times as much each.

    In one session and control group with them: the scheduler weighs these as a whole first.
    """
    cpu = max(os.sched_getaffinity(0))
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(LOOPS)]
    tasks = tasks_of(pid)
    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {cpu})
            os.setpriority(os.PRIO_PROCESS, loop.pid, AHEAD)
        for task in tasks:
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(task, {cpu})
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        for task in tasks:
            with suppress(ProcessLookupError):  # it was killed
                os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))

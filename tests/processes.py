# SPDX-License-Identifier: GPL-2.0-only
"""Processes by their names. Any of them may end while it is looked at: it is left out then."""

import time
from pathlib import Path


def name_of(pid: int) -> str:
    """What the process is called; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def children_of(pid: int) -> dict[int, str]:
    """Pids and names of the processes that this one started and that live."""
    pids = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return {pid: name for pid in pids if (name := name_of(pid))}


def process_cpu_ns(pid: int) -> int:
    """CPU time of a process and all its threads, those that ended too, by the scheduler."""
    clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of a process (clock_getcpuclockid(3))
    return time.clock_gettime_ns(clock)

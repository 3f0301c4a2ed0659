# SPDX-License-Identifier: GPL-2.0-only
"""CPU times of the host and memory of this process, read from /proc."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tlstax.collectors.recording.target_counters import TargetCounters

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def host_times() -> tuple[int, int, int, int, int]:
    """User, system, interrupt, steal and idle time of the host in ns (10 ms resolution)."""
    with open("/proc/stat", "rb", buffering=0) as file:
        fields = [int(field) for field in file.read(256).split(b"\n", 1)[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = fields
    times = (user + nice, system, irq + softirq, steal, idle + iowait)
    return tuple(ticks * _TICK_NS for ticks in times)  # type: ignore[return-value]


def resident_bytes() -> int:
    """Resident memory of this process."""
    text = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(text.split()[1]) * _PAGE_BYTES


class Clocks:
    """The clocks of a recording by this process, and the memory that it uses."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: CLOCK_MONOTONIC."""
        self.now_ns = now_ns

    def host_times(self) -> tuple[int, int, int, int, int]:
        """As the function of that name."""
        return host_times()

    def own_cpu_ns(self) -> int:
        """CPU time of the recorder."""
        return time.process_time_ns()

    def resident_bytes(self) -> int:
        """Memory of the recorder."""
        return resident_bytes()

    def target_counters(self, pid: int) -> TargetCounters | None:
        """Quota and TCP timers of the target; None where they are not recorded."""
        return TargetCounters(pid)

# SPDX-License-Identifier: GPL-2.0-only
"""CPU times of the host and memory of this process, read from /proc."""

import os
from pathlib import Path
from typing import Final

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

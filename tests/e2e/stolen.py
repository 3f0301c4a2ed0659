# SPDX-License-Identifier: GPL-2.0-only
"""What the hypervisor took while something was measured: on the CPU for the ledger only.

A process's CPU clock does not have it, so tests that hold the two against each other forgive it: up
to what the host counted, which the ledger has no part in.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tlstax.collectors.capture.schema import ProcessClock

_HZ: Final = os.sysconf("SC_CLK_TCK")
_TICK_NS: Final = 10**9 // _HZ
"""What a count may lack, as the sum of all CPUs is told in whole ticks; where any was counted."""
_STEAL: Final = 8
"""Its word in a line of /proc/stat (proc_stat(5)), behind the name."""


def host_steal_ns() -> int:
    """Stolen from all CPUs since the host started."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(words[_STEAL]) * 10**9 // _HZ


def forgiven_ns(rows: Iterable[ProcessClock], since_ns: int) -> int:
    """What these rows may have on the CPU without their clock, by what the host counted since."""
    counted_ns = host_steal_ns()
    most_ns = counted_ns - since_ns + _TICK_NS if counted_ns else 0
    return min(sum(max(0, row.steal_ns) for row in rows), most_ns)

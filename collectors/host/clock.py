# SPDX-License-Identifier: GPL-2.0-only
"""The clock that all sources of a capture share, and what this process has used of CPUs."""

import resource
import time


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC, which the programs in the kernel read, too."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def cpu_used_ns() -> int:
    """CPU time of this process and of those children of it that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + int((children.ru_utime + children.ru_stime) * 1e9)

# SPDX-License-Identifier: GPL-2.0-only
"""The clock that all sources of a capture share, and the CPU time of this process."""

import resource
import time


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC, which the BPF programs read, too."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def children_cpu_ns() -> int:
    """CPU time of the children of this process that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((children.ru_utime + children.ru_stime) * 1e9)


def cpu_used_ns() -> int:
    """CPU time of this process and of its children that have ended."""
    return time.process_time_ns() + children_cpu_ns()

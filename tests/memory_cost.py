# SPDX-License-Identifier: GPL-2.0-only
"""What memory costs on this host now: a guest whose host takes free pages back waits for each."""

import mmap
import time
from typing import Final

SLOW_NS: Final = 1_500
"""A page from here on; 2 to 39 µs were seen on a virtual machine whose host was short of memory."""


def page_ns() -> float:
    """CPU time that it takes to touch a page for the first time."""
    size = 4 << 20
    with mmap.mmap(-1, size) as memory:
        began_ns = time.thread_time_ns()
        for place in range(0, size, mmap.PAGESIZE):
            memory[place] = 1
        return (time.thread_time_ns() - began_ns) / (size // mmap.PAGESIZE)

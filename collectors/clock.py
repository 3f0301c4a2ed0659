# SPDX-License-Identifier: GPL-2.0-only
"""The clock that all sources of a capture share."""

import time


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC, which the programs in the kernel read, too."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

# SPDX-License-Identifier: GPL-2.0-only
"""What TCP counted for open connections (the source `sockets`), by block."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from tlstax.analysis.findings.throughout import Add
from tlstax.analysis.rows.tables import Tables

SOURCE: Final = "sockets"


def add_sockets(
    add: Add, everywhere: Mapping[int, int], block_of: Mapping[int, int], tables: Tables
) -> None:
    """The readings of the source by block, and how long they and the ledger cover."""
    windows = sorted((w.start_ns, w.end_ns, w.window_id) for w in tables.windows)
    starts = [start for start, _, _ in windows]
    for row in tables.metrics:
        if row.source != SOURCE:
            continue
        middle = row.time_ns - row.interval_ns // 2
        at = bisect_right(starts, middle) - 1
        block = everywhere.get(windows[at][2]) if at >= 0 and middle < windows[at][1] else None
        if block is None:
            continue
        add(f"sockets:{row.name}", block, row.value)
        if row.name == "open_count":
            add("sockets:time", block, row.interval_ns)
    for start, end, window_id in windows:
        if window_id in block_of:
            add("dense:time", block_of[window_id], end - start)

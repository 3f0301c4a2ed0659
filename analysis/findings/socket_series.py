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
    """The readings of the source by block, and how long they and the ledger cover.

    A reading counts in each window with the part of its interval that lies in it.
    """
    windows = sorted((w.start_ns, w.end_ns, w.window_id) for w in tables.windows)
    ends = [end for _, end, _ in windows]
    for row in tables.metrics:
        if row.source != SOURCE or row.interval_ns <= 0:
            continue
        begin = row.time_ns - row.interval_ns
        for start, end, window_id in windows[bisect_right(ends, begin) :]:
            if start >= row.time_ns:
                break
            block = everywhere.get(window_id)
            if block is None:
                continue
            length = min(end, row.time_ns) - max(start, begin)
            add(f"sockets:{row.name}", block, row.value * length / row.interval_ns)
            if row.name == "open_count":
                add("sockets:time", block, length)
    for start, end, window_id in windows:
        if window_id in block_of:
            add("dense:time", block_of[window_id], end - start)

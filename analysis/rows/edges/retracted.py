# SPDX-License-Identifier: GPL-2.0-only
"""Commands that had not ended: counted in one window, and taken back in a later one.

A command that receives from its client may have ended, and the next one be read: so it is counted.
If it then goes on (LOAD DATA LOCAL, for one) the count is taken back, and a window in between has
been written. In a capture that later window has a count below 0; here the earlier one loses it.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from tlstax.collectors.capture.schema import Latency, PhaseCount

R = TypeVar("R", PhaseCount, Latency)


def settle_counts(rows: Sequence[PhaseCount]) -> list[PhaseCount]:
    """The counts of phases, none below 0."""
    return _settle(rows, lambda row: row.phase)


def settle_latencies(rows: Sequence[Latency]) -> list[Latency]:
    """The buckets of latencies, none below 0."""
    return _settle(rows, lambda row: (row.phase, row.low_ns, row.high_ns))


def _settle(rows: Sequence[R], key_of: Callable[[R], Hashable]) -> list[R]:
    """Rows in order of time. What no earlier window has was counted in another capture."""
    if all(row.ended_count >= 0 for row in rows):
        return list(rows)
    counts = [max(0, row.ended_count) for row in rows]
    counted: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        before = counted.setdefault(key_of(row), [])
        debt = max(0, -row.ended_count)
        while debt and before:
            taken = min(debt, counts[before[-1]])
            counts[before[-1]] -= taken
            debt -= taken
            if not counts[before[-1]]:
                before.pop()
        if counts[index]:
            before.append(index)
    pairs = zip(rows, counts, strict=True)
    return [row._replace(ended_count=count) for row, count in pairs if count]

# SPDX-License-Identifier: GPL-2.0-only
"""Commands that had not ended: counted in one window, and taken back in a later one.

A command that receives from its client may have ended, and the next one be read: so it is counted.
If it then goes on (LOAD DATA LOCAL, for one) the count is taken back, and a window in between has
been written. In a capture that later window has a count below 0; here the earlier one of the same
target loses it. Who gets one window after another cannot change the earlier one: there the next
one loses it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from tlstax.collectors.capture.schema import Latency, PhaseCount, Window

R = TypeVar("R", PhaseCount, Latency)


def settle_counts(rows: list[PhaseCount], windows: Iterable[Window]) -> list[PhaseCount]:
    """The counts of phases, none below 0. `windows`: all of them, which name the targets."""
    return _settle(rows, windows, lambda row: row.phase)


def settle_latencies(rows: list[Latency], windows: Iterable[Window]) -> list[Latency]:
    """The buckets of latencies, none below 0."""
    return _settle(rows, windows, lambda row: (row.phase, row.low_ns, row.high_ns))


def _settle(rows: list[R], windows: Iterable[Window], key_of: Callable[[R], Hashable]) -> list[R]:
    """Rows in order of time. What no earlier window has was counted in another capture."""
    if all(row.ended_count >= 0 for row in rows):
        return rows
    targets = {window.window_id: window.target_id for window in windows}
    counts = [max(0, row.ended_count) for row in rows]
    counted: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        before = counted.setdefault((targets.get(row.window_id), key_of(row)), [])
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


class Retractions:
    """What the windows of one target have taken back and no later one has lost yet."""

    def __init__(self) -> None:
        self._owed: dict[Hashable, int] = {}

    def settle(
        self, counts: Iterable[PhaseCount], latencies: Iterable[Latency]
    ) -> tuple[list[PhaseCount], list[Latency]]:
        """The counts and buckets of the next window, none below 0: their sums only grow."""
        kept: list[Latency] = []
        moved: dict[str, int] = defaultdict(int)
        for row in latencies:
            count = self._left((row.phase, row.low_ns, row.high_ns), row.ended_count)
            moved[row.phase] += count - row.ended_count
            if count:
                kept.append(row._replace(ended_count=count))
        of_phases = [
            row._replace(ended_count=self._left(row.phase, row.ended_count + moved[row.phase]))
            for row in counts
        ]
        return of_phases, kept

    def _left(self, key: Hashable, count: int) -> int:
        """What is left of a count; what it lacks is owed."""
        count -= self._owed.pop(key, 0)
        if count < 0:
            self._owed[key] = -count
        return max(0, count)

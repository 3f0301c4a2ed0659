# SPDX-License-Identifier: GPL-2.0-only
"""Counters on the intervals at which they were read: growth, resets, and means over any span."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tlstax.collectors.capture.schema import Metric, Status
from tlstax.collectors.capture.series import Line

Span = tuple[int, int]
Known = tuple[float, int]
"""What was counted, and in how much time (ns); a level counts as itself times its time."""
UNKNOWN: Final[Known] = (0.0, 0)
_BEYOND: Final = 1e24
"""No counter of 64 bits comes near it."""
_SECOND_NS: Final = 1e9
_LATER: Final = "#"
"""In names of waits, which a server lists from their first occurrence on."""


@dataclass
class Grid:
    """The intervals of one source in order, and what each of its counters did in them."""

    spans: list[Span]
    counters: dict[str, list[Known]]
    fell: dict[int, list[str]] = field(default_factory=dict)
    """Counters that were less than before, by the index of the interval."""

    def merged(self, count: int) -> "Grid":
        """The same with `count` intervals put together into each."""
        if count <= 1:
            return self
        starts = range(0, len(self.spans), count)
        groups = [self.spans[at : at + count] for at in starts]
        return Grid(
            [(group[0][0], group[-1][1]) for group in groups],
            {
                name: [_sum(values[at : at + count]) for at in starts]
                for name, values in self.counters.items()
            },
        )

    def values(self, line: Line) -> list[float | None]:
        """A line's value in each interval; None where it is not known."""
        columns = [self.counters[name] for name in line.counters if name in self.counters]
        if not columns:
            return [None] * len(self.spans)
        if line.how in ("mean", "complement"):
            if len(columns) < len(line.counters):
                return [None] * len(self.spans)
            return [_quotient(line, over, under) for over, under in zip(*columns, strict=True)]
        return [_together(line, parts) for parts in zip(*columns, strict=True)]

    def has(self, line: Line) -> bool:
        """Whether the counters that the line needs were read."""
        known = [name in self.counters for name in line.counters]
        return all(known) if line.how in ("mean", "complement") else any(known)

    def resets(self) -> Iterator[tuple[Span, list[str]]]:
        """The intervals in which counters fell, and which did."""
        for index in sorted(self.fell):
            yield self.spans[index], self.fell[index]


def _sum(parts: Sequence[Known]) -> Known:
    return sum(amount for amount, _ in parts), sum(time_ns for _, time_ns in parts)


def _together(line: Line, parts: Sequence[Known]) -> float | None:
    """The sum of several counters in one interval, as the line is counted."""
    if any(time_ns <= 0 for _, time_ns in parts):
        return None
    rate = sum(amount / time_ns for amount, time_ns in parts) * line.scale
    return rate * _SECOND_NS if line.how == "rate" else rate


def _quotient(line: Line, over: Known, under: Known) -> float | None:
    if min(over[1], under[1]) <= 0 or under[0] <= 0:
        return None
    share = over[0] / under[0] * line.scale
    return max(0.0, 1 - share) if line.how == "complement" else share


def number(text: str) -> float | None:
    """What a server printed as a number; None for a name or a date."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < _BEYOND else None


def grid_of_metrics(rows: Sequence[Metric], own: Sequence[Metric], lines: Iterable[Line]) -> Grid:
    """The counters of one object (`own`) on the intervals of its source (`rows`).

    `lines` tell which of them are readings and not growth. What a source does not say of an object
    that it knows did not move; only a mean is unknown there.
    """
    kinds = {name: line.how for line in lines for name in line.counters}
    spans = sorted({(row.time_ns - row.interval_ns, row.time_ns) for row in rows})
    index = {span: at for at, span in enumerate(spans)}
    counters: dict[str, list[Known]] = {}
    for row in own:
        how = kinds.get(row.name)
        if row.name not in counters:
            counters[row.name] = [
                UNKNOWN if how == "average" else (0.0, end - start) for start, end in spans
            ]
        at = index[row.time_ns - row.interval_ns, row.time_ns]
        amount = row.value * row.interval_ns if how in ("level", "average") else row.value
        counters[row.name][at] = amount, row.interval_ns
    return Grid(spans, counters)


def grid_of_status(rows: Sequence[Status], gauges: Collection[str]) -> Grid:
    """The server's counters between its answers. A capture has a counter only where it moved."""
    by_time: dict[int, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if (value := number(row.value)) is not None:
            by_time[row.time_ns][row.name] = value
    times = sorted(by_time)
    spans = list(itertools.pairwise(times))
    grid = Grid(spans, {name: [] for answer in by_time.values() for name in answer})
    last = dict(by_time[times[0]]) if times else {}
    waits = any(_LATER in name for name in last)
    for index, (start, end) in enumerate(spans):
        current = last | by_time[end]
        for name, values in grid.counters.items():
            known = _growth(name, last, current, waits=waits)
            if name in gauges:
                values.append((current[name] * (end - start), end - start)
                              if name in current else UNKNOWN)  # fmt: skip
            elif known is None or known < 0:
                values.append(UNKNOWN)
                if known is not None:
                    grid.fell.setdefault(index, []).append(name)
            else:
                values.append((known, end - start))
        last = current
    return grid


def _growth(
    name: str, last: Mapping[str, float], current: Mapping[str, float], *, waits: bool
) -> float | None:
    """What a counter grew by; None where it was not read before."""
    if name not in current:
        return 0.0 if waits and _LATER in name else None
    before = last.get(name, 0.0 if waits and _LATER in name else None)
    return None if before is None else current[name] - before

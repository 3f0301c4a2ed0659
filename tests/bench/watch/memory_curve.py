# SPDX-License-Identifier: GPL-2.0-only
"""Resident memory of a watch over time, and how much it grows once it has settled.

Memory settles while the watch is attached for the first time and in the minutes after it: names of
the build, room for the first rollups, pages of tables that are touched for the first time. The raw
windows of the first life of the server are explained when that has ended. So the first life is the
warm-up, and it counts as one only if it lasted WARM_UP_S. After it each load is compared with the
same load in the last life: medians, as a short process that the watch starts is counted, too.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

WARM_UP_S: Final = 600.0
EVERY_S: Final = 10.0
_SHOWN: Final = 40
"""Points of a printed curve."""


class Point(NamedTuple):
    """Memory at a time."""

    since_s: float
    resident_bytes: int


class Settled(NamedTuple):
    """Median memory under one load of one life of the server."""

    life: str
    load: str
    start_s: float
    resident_bytes: float


class Curve:
    """Memory since the watch began."""

    def __init__(self, read_bytes: Callable[[], int]) -> None:
        self.points: list[Point] = []
        self._read_bytes = read_bytes
        self._began_s = time.monotonic()
        self._stop = threading.Event()

    @property
    def now_s(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._began_s

    @contextmanager
    def drawn(self) -> Iterator["Curve"]:
        """Meanwhile a thread looks every EVERY_S."""
        thread = threading.Thread(target=self._draw)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _draw(self) -> None:
        while True:
            self.points.append(Point(self.now_s, self._read_bytes()))
            if self._stop.wait(EVERY_S):
                return

    def median_since(self, start_s: float) -> float:
        """Median memory from a time on; now, if nobody has looked since."""
        found = [point.resident_bytes for point in self.points if point.since_s >= start_s]
        return statistics.median(found or [self._read_bytes()])

    def lines(self) -> Iterator[str]:
        """The curve for people, thinned."""
        step = -(-len(self.points) // _SHOWN) or 1
        for at in range(0, len(self.points), step):
            some = [point.resident_bytes for point in self.points[at : at + step]]
            minutes = self.points[at].since_s / 60
            yield f"{minutes:6.1f} min  {statistics.median(some) / 1e6:7.2f} MB"


def growth(settled: Sequence[Settled]) -> tuple[float, float] | None:
    """The largest growth of a load from the second life to the last one in bytes, and its hours.

    None where the first life was shorter than WARM_UP_S, or there are no two lives after it.
    """
    lives = list(dict.fromkeys(one.life for one in settled))
    if len(lives) < 3:
        return None
    first, last = (
        {one.load: one for one in settled if one.life == life} for life in (lives[1], lives[-1])
    )
    if min(one.start_s for one in first.values()) < WARM_UP_S:
        return None
    return max(
        (last[load].resident_bytes - one.resident_bytes, (last[load].start_s - one.start_s) / 3600)
        for load, one in first.items()
    )


def verdict(settled: Sequence[Settled], most_bytes: int) -> str:
    """How much memory grew, in a sentence."""
    found = growth(settled)
    if found is None:
        return (
            f"Growth of memory is not judged: the first life of the server is the warm-up, and has "
            f"to last {WARM_UP_S / 60:.0f} minutes (HOURS=1 and more)."
        )
    grown, hours = found
    goal = "within" if grown <= most_bytes else "above"
    return (
        f"Memory after a warm-up (the first life of the server): {grown / 1e6:+.2f} MB in "
        f"{hours:.1f} hours, {goal} {most_bytes / 1e6:.0f} MB. Of each load the median in the "
        "second life and in the last one; this is the load that grew most."
    )

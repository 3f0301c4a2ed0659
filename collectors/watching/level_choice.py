# SPDX-License-Identifier: GPL-2.0-only
"""Which level is recorded: `flow` where it fits the budget, else `handshake` with stretches of it.

Shares are of the server's CPU time, and of one CPU where it uses less. A budget is kept over
minutes, not in each window: a stretch of `flow` that exceeds it is paid for by the time at
`handshake` that follows.
"""

from collections import deque
from math import ceil, inf
from typing import Final, NamedTuple

from tlstax.probes.model import Level

LEAST_CPUS: Final = 1.0
"""A server that uses less CPU is counted as using this much: a share of 0 would be 0."""
SPARE: Final = 0.7
"""The best level must cost this share of the budget before stretches of it end."""
JUDGED: Final = 3
"""Windows in a row that exceed the budget before the level is changed."""
LIGHT_LEAST: Final = 6
LIGHT_MOST: Final = 360
"""Windows at `handshake` between two stretches of `flow`."""


class Cost(NamedTuple):
    """What a window took."""

    span_ns: int
    server_cpu_ns: int
    overhead_ns: float
    """CPU time of the probes in the server and of tlstax."""

    @property
    def share(self) -> float:
        """Of the server's CPU time."""
        return self.overhead_ns / self.base_ns

    @property
    def base_ns(self) -> float:
        """What shares are of."""
        return max(self.server_cpu_ns, LEAST_CPUS * self.span_ns, 1)


class LevelChoice:
    """Chooses between the best level and `handshake`, window by window."""

    def __init__(self, best: Level, budget: float) -> None:
        self.best = best
        self.level = best
        self._budget = budget
        self._dense: deque[float] = deque(maxlen=JUDGED)
        self._light: deque[float] = deque(maxlen=JUDGED)
        self._left = inf  # windows until the level changes
        self._is_stretch = False
        self._is_alternating = False
        self._start_share = 0.0

    def window(self, cost: Cost, start_ns: float = 0.0) -> bool:
        """A window at `level` ended; whether the level has changed.

        `start_ns`: CPU time to start the recorder, which a change of the level does.
        """
        self._start_share = start_ns / cost.base_ns
        if self.best <= Level.HANDSHAKE:
            return False
        if self.level == Level.HANDSHAKE:
            return self._light_window(cost.share)
        self._dense.append(cost.share)
        if self._is_stretch and cost.share <= SPARE * self._budget:
            self._is_stretch = self._is_alternating = False  # it fits again
        is_judged = self._is_stretch or len(self._dense) == JUDGED
        if is_judged and min(self._dense) > self._budget:
            self.level, self._left = Level.HANDSHAKE, self._light_windows()
            self._light.clear()
            self._is_alternating = True
            return True
        return False

    def _light_window(self, share: float) -> bool:
        self._light.append(share)
        self._left -= 1
        if self._left > 0:
            return False
        self.level, self._is_stretch = self.best, True
        self._dense.clear()
        return True

    def _light_windows(self) -> int:
        """Windows that pay for one of the best level."""
        dense = self._dense[-1] + 2 * self._start_share  # there and back
        light = max(self._light, default=0.0)
        spare = self._budget - light
        wanted = (dense - self._budget) / spare if spare > 0 else inf
        return ceil(min(max(wanted, LIGHT_LEAST), LIGHT_MOST))

    @property
    def is_alternating(self) -> bool:
        """Whether the best level is recorded in stretches only."""
        return self._is_alternating

    @property
    def best_share(self) -> float:
        """What the best level took last."""
        return self._dense[-1] if self._dense else 0.0

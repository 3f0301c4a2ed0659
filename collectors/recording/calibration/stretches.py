# SPDX-License-Identifier: GPL-2.0-only
"""Short stretches of a recording at level `flow` in which probes tell the parts of commands, too.

A second engine at level `record` is attached beside the first one, which goes on: its ledger has no
gap. Each stretch is one window of the recording, and the second engine's CPU times go with it into
the capture. Stretches come at random times, so that they stand for all of the recording.
"""

import random
from collections.abc import Callable
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.calibration.exact_parts import ExactParts

STRETCH_MS: Final = 200
COUNT: Final = 14
"""Stretches of a recording whose length is known."""
OFTEN_S: Final = 2.0
SELDOM_S: Final = 12.0
UNKNOWN_LENGTH_S: Final = 6.0
_JITTER: Final = 0.5
_NEVER_NS: Final = 1 << 62

EndWindow = Callable[[int, float], int]
"""Ends the present window at a time, adds so many ns to its overhead, and returns its number."""


def interval_s(duration_s: float | None) -> float:
    """Mean time between two stretches of a recording of this length."""
    if duration_s is None:
        return UNKNOWN_LENGTH_S
    return min(max(duration_s / COUNT, OFTEN_S), SELDOM_S)


class Stretches:
    """When there are stretches, and what they tell. Without `parts` there are none."""

    def __init__(self, parts: ExactParts | None, mean_s: float, seed: int) -> None:
        """One about every `mean_s`."""
        self._parts = parts
        self._mean_ns = mean_s * 1e9
        self._random = random.Random(seed)
        self._due_ns = 0
        self._plan_next()

    def _plan_next(self) -> None:
        factor = 1 + self._random.uniform(-_JITTER, _JITTER)
        self._due_ns = monotonic_ns() + int(self._mean_ns * factor)

    @property
    def due_ns(self) -> int:
        """When the next one is to begin."""
        return self._due_ns if self._parts else _NEVER_NS

    def is_due(self) -> bool:
        """Whether one is to begin now."""
        return monotonic_ns() >= self.due_ns

    def take(
        self, end_window: EndWindow, rest: Callable[[int], tuple[bool, bool]]
    ) -> list[schema.CommandPart]:
        """One stretch, and its rows; none if it was disturbed.

        `rest` waits for so many ms, and says whether anything ended that.
        """
        assert self._parts is not None
        parts = self._parts
        parts.attach()
        try:
            start_ns = monotonic_ns()
            parts.begin(start_ns)
            end_window(start_ns, 0.0)
            if any(rest(STRETCH_MS)):
                return []
            end_ns = monotonic_ns()
            rows = parts.told(0, end_ns)
            window_id = end_window(end_ns, parts.overhead_ns)
            return [row._replace(window_id=window_id) for row in rows]
        finally:
            parts.detach()
            self._plan_next()

    def close(self) -> None:
        """Detach and unload."""
        if self._parts:
            self._parts.close()


NO_STRETCHES: Final = Stretches(None, SELDOM_S, 0)

# SPDX-License-Identifier: GPL-2.0-only
"""Short stretches of a recording at level `flow` in which probes tell the parts of commands, too.

A second engine at level `record` is attached beside the first one, which goes on: its ledger has no
gap. Each stretch is one window of the recording, and the second engine's CPU times go with it into
the capture. Stretches come at random times, so that they stand for all of the recording, and as
often as the budget allows.
"""

import random
from collections.abc import Callable
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.host.child import own_cpu_ns
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.calibration.exact_parts import ExactParts
from tlstax.collectors.recording.engine.budget import Overhead
from tlstax.collectors.recording.engine.schedule import Schedule

STRETCH_MS: Final = 200
COUNT: Final = 14
"""Stretches of a recording whose length is known."""
OFTEN_S: Final = 2.0
SELDOM_S: Final = 12.0
UNKNOWN_LENGTH_S: Final = 6.0
_JITTER: Final = 0.5
_AGAIN_NS: Final = 1_000_000_000
"""How long to wait where the budget does not suffice."""
_FIRST_COST_NS: Final = 100_000_000
"""Expected cost of the first stretch, most of it attaching and detaching."""
_NEVER_NS: Final = 1 << 62

EndWindow = Callable[[int, Overhead | None], int]
"""Ends the present window at a time, adds this to its overhead, and returns its number."""


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
        self._cost_ns = float(_FIRST_COST_NS)
        self._due_ns = 0
        self._plan_next()

    def _plan_next(self) -> None:
        factor = 1 + self._random.uniform(-_JITTER, _JITTER)
        self._due_ns = monotonic_ns() + int(self._mean_ns * factor)

    def wake_ns(self, schedule: Schedule) -> int:
        """When to look next whether one is due."""
        return self._due_ns if self._parts and schedule.is_steady_flow else _NEVER_NS

    def is_due(self, schedule: Schedule) -> bool:
        """Whether one is to begin now; with a budget, if its account can pay for it."""
        now_ns = monotonic_ns()
        if now_ns < self.wake_ns(schedule):
            return False
        if schedule.account is not None and schedule.account.balance_ns < self._cost_ns:
            self._due_ns = now_ns + _AGAIN_NS
            return False
        return True

    def take(
        self, schedule: Schedule, end_window: EndWindow, rest: Callable[[int], tuple[bool, bool]]
    ) -> list[schema.CommandPart]:
        """One stretch, and its rows; none if it was disturbed.

        `rest` waits for so many ms, and says whether anything ended that.
        """
        assert self._parts is not None
        parts, own_ns, spent_ns = self._parts, own_cpu_ns(), 0.0
        parts.attach()
        try:
            start_ns = monotonic_ns()
            parts.begin(start_ns)
            end_window(start_ns, None)
            if not schedule.is_steady_flow or any(rest(STRETCH_MS)):
                return []
            end_ns = monotonic_ns()
            rows = parts.told(0, end_ns)
            overhead = parts.overhead
            spent_ns = overhead.total_ns
            window_id = end_window(end_ns, overhead)
            return [row._replace(window_id=window_id) for row in rows]
        finally:
            parts.detach()
            self._plan_next()
            self._cost_ns = own_cpu_ns() - own_ns + spent_ns

    def close(self) -> None:
        """Detach and unload."""
        if self._parts:
            self._parts.close()


NO_STRETCHES: Final = Stretches(None, SELDOM_S, 0)

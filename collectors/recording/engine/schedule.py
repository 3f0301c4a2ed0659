# SPDX-License-Identifier: GPL-2.0-only
"""The windows of one recording by the engine: one level, all the time, and what it costs."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.engine.expected_cost import FLOOR_CPUS, shares_of
from tlstax.collectors.recording.engine.metering import Meter, Overhead, Reading
from tlstax.collectors.recording.engine.native import Engine
from tlstax.probes.model import Level

_TIMED_EVERY: Final = 31
"""The kernel times the programs in the first of this many windows, and continues until a window was
busy. (Odd, because in experiments every second window is between two runs.)"""


class Schedule:
    """The windows of one engine."""

    def __init__(self, engine: Engine, level: Level, window_ns: int, sample_hz: int) -> None:
        self._engine = engine
        self._level = level
        self._window_ns = window_ns
        self._sample_hz = sample_hz
        self._meter = Meter(engine, engine.plan.sites)
        self.next_ns = 0
        self.windows_count = 0
        self._last: Reading
        self._predicted: dict[str, float] = {}

    def attach(self) -> None:
        """Attach all probes of the level; the kernel times the programs in the first windows."""
        self._engine.attach(self._level >= Level.FLOW, self._level >= Level.HANDSHAKE)
        self._meter.statistics(True)

    def begin(self) -> None:
        """The first window begins now."""
        self._last = self._meter.read()
        self.next_ns = self._last.time_ns + self._window_ns

    @property
    def window_level(self) -> str:
        """The level of the windows, as captures call it."""
        return "full" if self._level == Level.RECORD else self._level.name.lower()

    def overhead(self) -> Overhead:
        """The overhead since the last call."""
        now = self._meter.read()
        overhead = self._meter.overhead(self._last, now, self._level, self._sample_hz)
        self._last = now
        return overhead

    def effect(self, window_id: int, overhead: Overhead) -> schema.Effect:
        """The overhead as a row of the capture."""
        known = self._meter.prices_are_known
        return schema.Effect(
            window_id,
            overhead.target_cpu_ns,
            round(overhead.probes_ns) if known else None,
            round(overhead.scheduler_ns),
            round(overhead.samples_ns),
        )

    def cut(self, overhead: Overhead, store: Callable[[], None]) -> None:
        """Store a window; the next one is like it. What the first cost is expected of all."""
        before_ns = time.process_time_ns()
        store()
        self.windows_count += 1
        if not self._predicted:
            own_ns = float(time.process_time_ns() - before_ns)
            by_cause = (overhead.probes_ns, overhead.scheduler_ns, overhead.samples_ns, own_ns)
            floor_ns = FLOOR_CPUS * overhead.span_ns
            self._predicted = shares_of(by_cause, max(1.0, overhead.target_cpu_ns, floor_ns))
        if self.windows_count % _TIMED_EVERY == 0:
            self._meter.saw_load = False
        self._meter.statistics(not self._meter.saw_load)
        self.next_ns = monotonic_ns() + self._window_ns

    def facts(self) -> Iterator[schema.Meta]:
        """The capture's rows about the expected overhead."""
        yield schema.Meta("effect_floor_cpus", f"{FLOOR_CPUS:g}")
        for key, value in self._predicted.items():
            yield schema.Meta(key, f"{value:.6f}")

    def close(self) -> None:
        """Statistics off."""
        self._meter.close()

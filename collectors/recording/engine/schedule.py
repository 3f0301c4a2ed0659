# SPDX-License-Identifier: GPL-2.0-only
"""The schedule of one recording: what is on when, its overhead, and when a window ends.

Without a budget one level is on all the time. With one, a trial at the full level comes first, and
then the windows that `Pace` asks for. The overhead of every window is measured.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.engine.budget import (
    FLOOR_CPUS,
    Account,
    Overhead,
    choose,
    has_ledger,
)
from tlstax.collectors.recording.engine.metering import Meter, Reading, SpanOverhead
from tlstax.collectors.recording.engine.native import Engine, level_of
from tlstax.collectors.recording.engine.pacing import TRIAL_NS, Pace, Step
from tlstax.probes.model import Level

_TIMED_EVERY: Final = 31
"""Without a budget the kernel times the programs in the first of this many windows, and continues
until a window was busy. (Odd, because in experiments every second window is between two runs.)"""
_NEVER_NS: Final = 1 << 62


class Schedule:
    """Levels and windows of one engine over time."""

    def __init__(
        self, engine: Engine, most: Level, window_ns: int, sample_hz: int, budget: float | None
    ) -> None:
        """At most level `most`, in windows of `window_ns`; `budget` is a share of the CPU time."""
        self._engine = engine
        self._most = most
        self._window_ns = window_ns
        self._sample_hz = sample_hz
        sites = engine.plan.sites
        self._meter = Meter(engine, sites, [level_of(site, most) for site in sites])
        self.pace = Pace(budget, most, window_ns, seed=engine.pid) if budget is not None else None
        self.level: Level | None = most
        self.next_ns = 0
        self._watch_ns = self._look_ns = _NEVER_NS
        self._cut_ns = 0.0
        self._turn_ns: float | None = None
        self.windows_count = 0
        self._last: Reading
        self._watched: Reading
        self._predicted: dict[str, float] = {}
        self._first_overhead: SpanOverhead | None = None
        self._summary = ""

    def attach(self) -> None:
        """Attach all probes of the level; the kernel times the programs in the first windows."""
        self._engine.attach(has_ledger(self._most), self._most >= Level.HANDSHAKE)
        self._meter.statistics(True)

    def begin(self) -> None:
        """The first window begins now."""
        self._last = self._watched = self._meter.read()
        self.next_ns = self._last.time_ns + (TRIAL_NS if self.pace else self._window_ns)

    @property
    def budget_summary(self) -> str:
        """How the budget is used; '' without one."""
        return self.pace.summary() if self.pace else ""

    @property
    def is_continuous(self) -> bool:
        """Whether everything is on all the time, as far as is known now."""
        choice = self.pace.choice if self.pace else None
        return choice is None or choice.is_continuous

    @property
    def is_steady_flow(self) -> bool:
        """Whether level `flow` is on, and stays on."""
        return self.is_continuous and self.level == Level.FLOW

    @property
    def account(self) -> Account | None:
        """What the budget has left; None without one."""
        return self.pace.account if self.pace else None

    @property
    def window_level(self) -> str:
        """The level of the present window, as captures call it."""
        if self.level is None:
            return "none"
        return "full" if self.level == Level.RECORD else self.level.name.lower()

    # ---- a window ends ----

    def overhead(self) -> SpanOverhead:
        """The overhead since the last call."""
        now = self._meter.read()
        overhead = self._meter.overhead(self._last, now, self.level, self._sample_hz)
        self._last = now
        if self._first_overhead is None:
            self._first_overhead = overhead
        return overhead

    def effect(self, window_id: int, overhead: SpanOverhead) -> schema.Effect:
        """The overhead as a row of the capture."""
        known = self._meter.prices_are_known
        return schema.Effect(
            window_id,
            overhead.target_cpu_ns,
            round(overhead.spent.probes_ns) if known else None,
            round(overhead.spent.scheduler_ns),
            round(overhead.spent.samples_ns),
        )

    def measure_cut(self, cut: Callable[[], None]) -> None:
        """Store a window, and keep the CPU time that this took."""
        before_ns = time.process_time_ns()
        cut()
        self._cut_ns = float(time.process_time_ns() - before_ns)
        self.windows_count += 1

    def go_on(self) -> None:
        """Without a budget: the next window is like the last."""
        if self.windows_count % _TIMED_EVERY == 0:
            self._meter.saw_load = False
        self._meter.statistics(not self._meter.saw_load)
        self.next_ns = monotonic_ns() + self._window_ns

    def next_step(self, overhead: SpanOverhead) -> Step:
        """With a budget: account for the window, and choose the next step."""
        assert self.pace is not None
        idle_ns = self._last.own_cpu_ns - self._watched.own_cpu_ns
        span_ns = self._last.time_ns - self._watched.time_ns
        watch = max(0.0, idle_ns / span_ns) if span_ns > 0 else 0.0
        step = self.pace.ended(overhead, self._cut_ns, self._turn_ns, watch)
        self._turn_ns = None
        return step

    def rises_to(self, level: Level | None) -> bool:
        """Whether the step starts the ledger, which needs its programs before the window."""
        is_on = self.level is not None and has_ledger(self.level)
        return level is not None and has_ledger(level) and not is_on

    def turn(self, level: Level | None) -> None:
        """Attach and detach."""
        own_ns = time.process_time_ns()
        if level != self.level:
            self._engine.go(level)
            self.level = level
            self._meter.statistics(level is not None and has_ledger(level))
        spent_ns = float(time.process_time_ns() - own_ns)
        self._turn_ns = spent_ns if self._turn_ns is None else self._turn_ns + spent_ns

    def follow(self, step: Step) -> None:
        """The step's window begins now."""
        self._watched = self._meter.read()
        self._watch_ns = step.watch_ns
        self._look_ns = self._watched.time_ns + step.watch_ns
        self.next_ns = self._watched.time_ns + step.length_ns

    @property
    def wake_ns(self) -> int:
        """When the window ends or is checked next."""
        return min(self.next_ns, self._look_ns)

    def look(self) -> None:
        """End the window early if it overspends."""
        if self.pace is None or monotonic_ns() < self._look_ns:
            return
        now = self._meter.read()
        self._look_ns = now.time_ns + self._watch_ns
        overhead = self._meter.overhead(self._watched, now, self.level, self._sample_hz)
        if self.pace.overspends(overhead):
            self.next_ns = now.time_ns

    # ---- what is expected ----

    def first_step(self) -> Step:
        """What follows the trial."""
        assert self.pace is not None
        return self.pace.first()

    def judge(self, overhead: SpanOverhead) -> None:
        """Choose by the trial's overhead. Raises TlstaxError (BUDGET) when nothing fits.

        Probes that fired while they were being detached show how long that takes.
        """
        assert self.pace is not None
        now = self._meter.read()
        tail = self._meter.overhead(self._last, now, self.level, 0).spent
        per_ns = (overhead.spent.probes_ns + overhead.spent.scheduler_ns) / max(1, overhead.span_ns)
        tail_ns = (tail.probes_ns + tail.scheduler_ns) / per_ns if per_ns else 0.0
        load = self._meter.load(overhead, self._cut_ns, 2 * (self._turn_ns or 0.0), tail_ns)
        choice = self.pace.begin(load, overhead)
        self._summary = self.pace.summary()
        self._predict(choice.predicted, choice.base)

    def expect(self) -> None:
        """Without a budget: the first window's overhead is the expected overhead of the others."""
        if self._predicted or self._first_overhead is None:
            return
        overhead = self._first_overhead
        load = self._meter.load(overhead, self._cut_ns, 0.0, 0.0)
        choice = choose(load, 1e9, self._most, self._window_ns)
        self._predict(choice.predicted, choice.base)

    def _predict(self, spent: Overhead, base: float) -> None:
        self._predicted = predicted_shares(spent, base)

    def facts(self) -> Iterator[schema.Meta]:
        """The capture's rows about the budget and the expected overhead."""
        yield schema.Meta("effect_floor_cpus", f"{FLOOR_CPUS:g}")
        for key, value in self._predicted.items():
            yield schema.Meta(key, f"{value:.6f}")
        if self.pace is not None:
            yield schema.Meta("budget_share", f"{self.pace.account.share:g}")
            yield schema.Meta("budget_choice", self._summary)

    def close(self) -> None:
        """Statistics off."""
        self._meter.close()


def predicted_shares(spent: Overhead, base: float) -> dict[str, float]:
    """An expected overhead per second, as shares of the server's CPU time, of which `base` CPUs."""
    base_ns = base * 1e9
    return {
        "predicted_share": spent.total_ns / base_ns,
        "predicted_probe_share": spent.probes_ns / base_ns,
        "predicted_scheduler_share": spent.scheduler_ns / base_ns,
        "predicted_sample_share": spent.samples_ns / base_ns,
        "predicted_engine_share": spent.collector_ns / base_ns,
    }


def light_of(most: Level) -> Level | None:
    """The level that a trial changes to, in order to measure the cost of a change."""
    if has_ledger(most):
        return Level.HANDSHAKE
    return Level.SAMPLE if most == Level.HANDSHAKE else None

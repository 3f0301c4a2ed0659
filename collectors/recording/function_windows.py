# SPDX-License-Identifier: GPL-2.0-only
"""Turn the function engine's running totals into the rows of one window after another."""

from collections.abc import Mapping

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.placement.model import FunctionPlan
from tlstax.collectors.recording.engine.function_calibration import kind_of
from tlstax.collectors.recording.engine.function_layout import size_bounds
from tlstax.collectors.recording.engine.functions import Calls, FunctionEngine, SumKey, TimeKey
from tlstax.collectors.recording.engine.ledger_layout import bucket_bounds
from tlstax.collectors.recording.target_rows import probe_row


class FunctionWindows:
    """Cuts windows out of an attached function engine."""

    def __init__(self, engine: FunctionEngine) -> None:
        """Everything up to now is excluded from the first window."""
        self._engine = engine
        self._sums: dict[SumKey, Calls] = engine.sums()
        self._times: dict[TimeKey, int] = engine.times()
        self._losses = engine.loss_counts()

    def cut(self, window: int) -> list[schema.Row]:
        """What was counted since the last cut, as the rows of this window."""
        rows: list[schema.Row] = []
        self._cut_sums(rows, window)
        self._cut_times(rows, window)
        losses = self._engine.loss_counts()
        for kind, count in losses.items():
            if count > self._losses[kind]:
                rows.append(schema.Loss(window, kind, count - self._losses[kind]))
        self._losses = losses
        return rows

    def _cut_sums(self, rows: list[schema.Row], window: int) -> None:
        sums = self._engine.sums()
        for key, calls in sums.items():
            before = self._sums.get(key)
            if calls == before:
                continue
            new = Calls(*(n - o for n, o in zip(calls, before, strict=True))) if before else calls
            function, phase, size_class = key
            low, high = size_bounds(size_class)
            rows.append(schema.PrimitiveCalls(window, function + 1, PHASES[phase], low, high, *new))
        self._sums = sums

    def _cut_times(self, rows: list[schema.Row], window: int) -> None:
        times = self._engine.times()
        for key, count in times.items():
            before = self._times.get(key, 0)
            if count == before:
                continue
            function, size_class, bucket = key
            bounds = (*size_bounds(size_class), *bucket_bounds(bucket))
            rows.append(schema.PrimitiveTime(window, function + 1, *bounds, count - before))
        self._times = times


def primitive_rows(engine: FunctionEngine) -> list[schema.Primitive]:
    """What is probed, with the calibrated cost of its probes."""
    rows = []
    for number, probed in enumerate(engine.plan.functions, start=1):
        cost = engine.costs[kind_of(probed)]
        rows.append(
            schema.Primitive(
                number,
                probed.primitive.id,
                probed.primitive.category,
                probed.primitive.unit,
                probed.function,
                probed.object.path,
                probed.object.build_id,
                str(probed.primitive.size),
                cost.inside_ns,
                cost.pair_ns,
                probed.why_not_timed,
            )
        )
    return rows


def probe_rows(engine: FunctionEngine, first_id: int, suffix: str) -> list[schema.Probe]:
    """The probes with their hits. The cost of a call is split evenly over its entry and exit."""
    entries = [0] * len(engine.plan.functions)
    exits = list(entries)
    for (function, _, _), calls in engine.sums().items():
        entries[function] += calls.call_count
        exits[function] += calls.timed_count
    rows: list[schema.Probe] = []
    for number, probed in enumerate(engine.plan.functions):
        cost_ns = engine.costs[kind_of(probed)].pair_ns
        both = not probed.why_not_timed
        for site in probed.sites:
            hits = entries[number] if site.event == "enter" else exits[number]
            each_ns = cost_ns / 2 if both else cost_ns
            rows.append(probe_row(first_id + len(rows), site, suffix, hits, each_ns))
            if site.event == "exit":
                exits[number] = 0  # of several exits of a function the first carries the hits
    return rows


class FunctionRecording:
    """The function engine of a recording, from attaching to the last row."""

    def __init__(self, plan: FunctionPlan, multi: bool, ledger_maps: Mapping[str, int]) -> None:
        """Load, calibrate and attach, before the ledger's probes are attached.

        Of two probes at one instruction the kernel runs the later one first, and the ledger should
        have changed the phase when the call is filed under it.
        """
        self._engine = FunctionEngine(plan, multi, ledger_maps)
        self._windows: FunctionWindows | None = None
        try:
            self._engine.attach()
        except BaseException:
            self._engine.close()
            raise

    def begin(self) -> list[schema.Row]:
        """The first window begins now; what is probed."""
        self._windows = FunctionWindows(self._engine)
        return [*primitive_rows(self._engine)]

    def cut(self, window: int) -> list[schema.Row]:
        """End a window."""
        return self._windows.cut(window) if self._windows else []

    def probes(self, first_id: int, suffix: str) -> list[schema.Probe]:
        """The probes with their hits so far; ids count from `first_id`."""
        return probe_rows(self._engine, first_id, suffix)

    def close(self) -> None:
        """Detach."""
        self._engine.close()

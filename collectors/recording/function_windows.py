# SPDX-License-Identifier: GPL-2.0-only
"""Turn what a stream tells of functions into the rows of one window after another."""

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.placement.model import FunctionPlan
from tlstax.collectors.recording.programs.ledger_layout import bucket_bounds
from tlstax.collectors.recording.stream.function_totals import (
    Calls,
    FunctionTotals,
    PairCost,
    size_bounds,
)
from tlstax.collectors.recording.target_rows import probe_row

_UNKNOWN = PairCost(0.0, 0.0)


class FunctionRows:
    """The rows of `--functions`."""

    def __init__(self, plan: FunctionPlan, totals: FunctionTotals) -> None:
        """Everything up to now is excluded from the first window."""
        self._plan = plan
        self._totals = totals
        self._sums = dict(totals.sums)
        self._times = dict(totals.times)
        self._losses = totals.losses

    def begin(self) -> list[schema.Primitive]:
        """What is probed, with the calibrated cost of its probes."""
        rows = []
        for number, probed in enumerate(self._plan.functions):
            cost = self._totals.costs.get(number, _UNKNOWN)
            rows.append(
                schema.Primitive(
                    number + 1,
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

    def cut(self, window: int) -> list[schema.Row]:
        """What was counted since the last cut, as the rows of this window."""
        rows: list[schema.Row] = []
        self._cut_sums(rows, window)
        self._cut_times(rows, window)
        losses = self._totals.losses
        for kind, count in losses.items():
            if count > self._losses[kind]:
                rows.append(schema.Loss(window, kind, count - self._losses[kind]))
        self._losses = losses
        return rows

    def _cut_sums(self, rows: list[schema.Row], window: int) -> None:
        for key, calls in self._totals.sums.items():
            before = self._sums.get(key)
            if calls == before:
                continue
            new = Calls(*(n - o for n, o in zip(calls, before, strict=True))) if before else calls
            function, phase, size_class = key
            low, high = size_bounds(size_class)
            rows.append(schema.PrimitiveCalls(window, function + 1, PHASES[phase], low, high, *new))
            self._sums[key] = calls

    def _cut_times(self, rows: list[schema.Row], window: int) -> None:
        for key, count in self._totals.times.items():
            before = self._times.get(key, 0)
            if count == before:
                continue
            function, size_class, bucket = key
            bounds = (*size_bounds(size_class), *bucket_bounds(bucket))
            rows.append(schema.PrimitiveTime(window, function + 1, *bounds, count - before))
            self._times[key] = count

    def probes(self, first_id: int, suffix: str) -> list[schema.Probe]:
        """The probes with their hits so far; ids count from `first_id`.

        The cost of a call is split evenly over its entry and exit.
        """
        entries = [0] * len(self._plan.functions)
        exits = list(entries)
        for (function, _, _), calls in self._totals.sums.items():
            entries[function] += calls.call_count
            exits[function] += calls.timed_count
        rows: list[schema.Probe] = []
        for number, probed in enumerate(self._plan.functions):
            cost_ns = self._totals.costs.get(number, _UNKNOWN).pair_ns
            each_ns = cost_ns if probed.why_not_timed else cost_ns / 2
            for site in probed.sites:
                hits = entries[number] if site.event == "enter" else exits[number]
                rows.append(probe_row(first_id + len(rows), site, suffix, hits, each_ns))
                if site.event == "exit":
                    exits[number] = 0  # of several exits of a function the first carries the hits
        return rows

# SPDX-License-Identifier: GPL-2.0-only
"""Conditions of the rules of findings: bounds of metrics, and texts that depend on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tlstax.analysis.findings.window_metrics import Metric, Metrics

_KEYS: Final = {"metric", "above", "below", "is", "above_of"}


@dataclass(frozen=True)
class Condition:
    """A bound of a metric."""

    metric: str
    above: float | None = None
    below: float | None = None
    text: str | None = None
    above_of: str | None = None

    def holds(self, metrics: Metrics) -> bool:
        """Whether the metric lies beyond the bound with its whole interval or range."""
        metric = metrics.get(self.metric, Metric(None))
        if self.text is not None:
            return metric.text.startswith(self.text)
        if metric.value is None or not metric.is_bounded:
            return False
        assert metric.low is not None
        assert metric.high is not None
        if self.above is not None and not metric.low > self.above:
            return False
        if self.above_of is not None:
            other = metrics.get(self.above_of, Metric(None))
            if other.high is None or not other.is_bounded or not metric.low > other.high:
                return False
        return self.below is None or metric.high < self.below

    def may_hold(self, metrics: Metrics) -> bool:
        """The same by the estimate alone, which needs no interval."""
        names = {self.metric, self.above_of or self.metric}
        known = {name: metrics.get(name, Metric(None)) for name in names}
        return self.holds(
            {name: Metric(one.value, one.value, one.value, one.text) for name, one in known.items()}
        )


@dataclass(frozen=True)
class Advice:
    """What to do, where a condition holds."""

    condition: Condition
    text: str


def condition(row: Mapping[str, Any]) -> Condition:
    """The condition of a table. KeyError names a key that no condition has."""
    if odd := sorted(row.keys() - _KEYS):
        raise KeyError(f"{row['metric']}: a condition has no {odd[0]}")
    return Condition(row["metric"], row.get("above"), row.get("below"), row.get("is"),
                     row.get("above_of"))  # fmt: skip


def advice(row: Mapping[str, Any]) -> Advice:
    """A condition with its text."""
    return Advice(condition({key: row[key] for key in row if key != "text"}), row["text"])

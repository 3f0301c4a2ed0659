# SPDX-License-Identifier: GPL-2.0-only
"""Every metric on two sides, over hosts: medians, intervals, and which differences are marked."""

from dataclasses import replace

import numpy as np

from tlstax.analysis.fleet.figures import HOSTS
from tlstax.analysis.fleet.host_sums import Sums
from tlstax.analysis.fleet.metrics import METRICS, Metric
from tlstax.analysis.fleet.question import facts_of
from tlstax.analysis.model.fleet import Figure, MetricChange
from tlstax.analysis.statistics import medians, verdicts
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats, rounds


def over_hosts(before: Sums, after: Sums, *, is_paired: bool) -> list[MetricChange]:
    """Every metric over hosts, marked by false-discovery rate.

    Another such rate, of tests against changes that are too small to count, says which count.
    """
    units = rounds(len(before.hosts), HOSTS), rounds(len(after.hosts), HOSTS)
    found: list[tuple[Metric, Estimate, list[float | None], tuple[Floats, Floats]]] = []
    for metric in METRICS:
        first, second = before.of(metric), after.of(metric)
        rows = (_row(metric, first), _row(metric, second))
        difference = medians.difference(*rows, units, is_paired=is_paired)
        p_values = [
            verdicts.p_value(*rows, units, is_paired=is_paired, least=least)
            for least in (0.0, metric.least_change)
        ]
        found.append((metric, difference, p_values, (first, second)))
    judged = verdicts.judge_all([(estimate, p[0]) for _, estimate, p, _ in found])
    bound = verdicts.largest_counting([p[1] for *_, p, _ in found if p[1] is not None])
    lines = []
    for (metric, estimate, (p, p_counting), sides), verdict in zip(found, judged, strict=True):
        is_counting = bound is not None and p_counting is not None and p_counting <= bound
        is_counting = is_counting and verdict in (verdicts.MORE, verdicts.LESS)
        is_counting = is_counting and abs(estimate.value) >= metric.least_change
        line = change_of(metric, estimate, p, sides, verdict)
        lines.append(replace(line, is_counting=is_counting))
    return lines


def change_of(
    metric: Metric,
    estimate: Estimate,
    p: float | None,
    sides: tuple[Floats, Floats],
    verdict: str,
) -> MetricChange:
    """A judged difference as the answer says it; no value where no host has one on both sides."""
    known = [side[np.isfinite(side)] for side in sides]
    first, second = (float(np.median(side)) if len(side) else None for side in known)
    if not estimate.unit_count or first is None or second is None:
        return MetricChange(
            facts_of(metric), first, second, Figure(None), metric.is_log, verdicts.NO_INTERVAL
        )
    figure = Figure(
        back(metric, estimate.value),
        None if estimate.low is None else back(metric, estimate.low),
        None if estimate.high is None else back(metric, estimate.high),
        estimate.unit_count,
    )
    return MetricChange(facts_of(metric), first, second, figure, metric.is_log, verdict, p)


def back(metric: Metric, change: float) -> float:
    """A change as a factor, or as the difference that it is."""
    return float(np.exp(change)) if metric.is_log else change


def _row(metric: Metric, values: Floats) -> Floats:
    """Values as statistics take them: a first place that they do not use, then the units."""
    return np.append([np.nan], scaled(metric, values))


def scaled(metric: Metric, values: Floats) -> Floats:
    """On the scale on which changes are differences."""
    if not metric.is_log:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.log(np.where(values > 0, values, np.nan))
    return logs

# SPDX-License-Identifier: GPL-2.0-only
"""Figures over hosts: medians with their intervals, outliers, and how values are written."""

from typing import Final

import numpy as np

from tlstax.analysis import quantities
from tlstax.analysis.fleet.metrics import Metric
from tlstax.analysis.model.fleet import Figure
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.medians import has_interval
from tlstax.analysis.statistics.units import Floats, rounds

HOSTS: Final = "hosts"
_FAR: Final = 3.0
"""Times the middle half beyond the quartiles: Tukey's outer fence."""
LEAST_SPREAD: Final = 1e-9
"""Values that differ by a smaller share are equal but for the order in which they were added."""


def figure(values: Floats) -> Figure:
    """The median over hosts with its interval, or the range of fewer than eight."""
    found = medians.estimate(np.append([np.nan], values), rounds(len(values), HOSTS))
    if not found.unit_count:
        return Figure(None)
    return Figure(found.value, found.low, found.high, found.unit_count)


def far_out(metric: Metric, values: Floats) -> tuple[float, float]:
    """The values beyond which a host is an outlier: infinite for fewer than eight hosts.

    Where most hosts have one value, the smallest other one lies outside of the middle half. So an
    outlier is also further from the quartiles than a change that counts for the metric.
    """
    known = values[np.isfinite(values)]
    if not has_interval(len(known)):
        return -np.inf, np.inf
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
    least = abs(middle) * np.expm1(metric.least_change) if metric.is_log else metric.least_change
    reach = max(_FAR * (high - low), least, LEAST_SPREAD * max(abs(low), abs(high)))
    return float(low - reach), float(high + reach)


def hosts_text(count: int) -> str:
    """So many hosts, in words."""
    return f"{count:,} host{'s' if count != 1 else ''}"


def value_text(unit: str, value: float | None) -> str:
    """A value of a metric in its unit."""
    if unit == "ns":
        return quantities.time(value)
    return quantities.reading(value, "number" if unit == "count" else unit)


def change_text(value: float | None, *, is_factor: bool) -> str:
    """A change: a factor, or a difference of shares in points."""
    if value is None:
        return quantities.ABSENT
    if is_factor:
        return quantities.ratio(value)
    points = quantities.number_text(value * 100)
    return f"{'+' if value > 0 else ''}{points}{quantities.NO_BREAK}points"


def change_bounds(figure: Figure, *, is_factor: bool) -> str:
    """The bounds of a change in its unit, or ''; of fewer than eight hosts with their number."""
    if figure.low is None or figure.high is None:
        return ""
    scale = 1 if is_factor else 100
    low, high = (quantities.three_digits(end * scale) for end in (figure.low, figure.high))
    few = "" if has_interval(figure.host_count) else f" of {figure.host_count}"
    return f"[{low}, {high}]{few}"


def value_bounds(unit: str, figure: Figure) -> str:
    """The bounds of a value, or ''."""
    if figure.low is None or figure.high is None:
        return ""
    count = figure.host_count
    if unit == "ns":
        return quantities.time_interval(figure.value or 0.0, figure.low, figure.high, count)
    if unit == "share":
        return quantities.share_interval(figure.low, figure.high, count)
    return quantities.number_interval(figure.low, figure.high, count)

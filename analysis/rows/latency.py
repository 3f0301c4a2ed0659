# SPDX-License-Identifier: GPL-2.0-only
"""Latency distributions from log-linear buckets: merging, quantiles with their error, CDF."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tlstax.analysis.model.tables import Bucket, Distribution, Measure, Quantile
from tlstax.analysis.statistics import shares
from tlstax.analysis.statistics.units import Units
from tlstax.collectors.capture.schema import Latency
from tlstax.collectors.capture.vocabulary import PHASES

Buckets = dict[tuple[int, int], int]
"""Count by [low, high) in ns."""

_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_TAIL_COUNT: Final = 5
"""Values that must lie beyond a quantile for it to be given."""


def merge(rows: Iterable[Latency], window_ids: Collection[int]) -> dict[str, Buckets]:
    """Buckets by phase over these windows, both in order."""
    sums: dict[str, Buckets] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.window_id in window_ids and row.ended_count > 0:
            sums[row.phase][row.low_ns, row.high_ns] += row.ended_count
    order = sorted(sums, key=lambda name: PHASES.index(name) if name in PHASES else len(PHASES))
    return {phase: dict(sorted(sums[phase].items())) for phase in order}


def merge_by_unit(
    rows: Iterable[Latency], unit_of: Mapping[int, int], count: int
) -> dict[str, list[Buckets]]:
    """Buckets by phase and unit; `unit_of` is that of each window."""
    sums: dict[str, list[Buckets]] = defaultdict(lambda: [defaultdict(int) for _ in range(count)])
    for row in rows:
        unit = unit_of.get(row.window_id)
        if unit is not None and row.ended_count > 0:
            sums[row.phase][unit][row.low_ns, row.high_ns] += row.ended_count
    return sums


def bucketize(values_ns: Iterable[int]) -> Buckets:
    """Exact values in buckets of the capture's own kind: 32 to each power of two."""
    buckets: Buckets = defaultdict(int)
    for value_ns in values_ns:
        shift = max(0, max(0, value_ns).bit_length() - 6)
        low_ns = max(0, value_ns) >> shift << shift
        buckets[low_ns, low_ns + (1 << shift)] += 1
    return dict(sorted(buckets.items()))


def quantile(buckets: Buckets, q: float) -> Quantile:
    """The bucket that holds quantile `q`, and a value interpolated inside of it.

    The true value lies in the bucket, so low and high are bounds, not a confidence interval.
    """
    rank = q * sum(buckets.values())
    below = 0
    low_ns, high_ns = next(reversed(buckets))
    inside = 1.0
    for (low, high), count in buckets.items():
        if below + count >= rank:
            low_ns, high_ns, inside = low, high, (rank - below) / count
            break
        below += count
    return Quantile(q, low_ns + inside * (high_ns - low_ns), low_ns, high_ns)


def exact_quantile(values_ns: Sequence[int], q: float) -> Quantile:
    """A quantile of exact, sorted values: the smallest with a share of at least `q` at or below."""
    value_ns = values_ns[max(0, -int(-q * len(values_ns) // 1) - 1)]
    return Quantile(q, value_ns, value_ns, value_ns)


def with_exact_sampling(one: Quantile, by_unit: Sequence[Sequence[int]], units: Units) -> Quantile:
    """The same with its interval over units, from the exact values of each."""
    if one.q >= 1 or not units.have_interval:
        return one
    each = [np.array(values, dtype=np.float64) for values in by_unit]
    ordered = np.sort(np.concatenate(each))
    found = shares.quantile(
        one.q,
        lambda q: exact_quantile(ordered.tolist(), q).value_ns,
        np.array([float((values < one.value_ns).sum()) for values in each]),
        np.array([float((values == one.value_ns).sum()) for values in each]),
        np.array([float(len(values)) for values in each]),
        units,
    )
    return replace(one, sampling=found.measure() if found.low is not None else None)


def wanted_quantiles(count: int) -> list[float]:
    """The quantiles that `count` values can carry: at least five values beyond each."""
    return [q for q in _QUANTILES if q == 0.5 or count * (1 - q) >= _TAIL_COUNT]


def distribution(
    name: str,
    label: str,
    phase: str,
    buckets: Buckets,
    by_unit: Sequence[Buckets] = (),
    units: Units | None = None,
    unfinished_ns: Sequence[int] = (),
) -> Distribution:
    """A distribution from buckets. Its mean takes the middle of each: an error of <= 2 %.

    `by_unit` are the same by round or block, for the intervals of the quantiles. `unfinished_ns`
    are lower bounds of values that are in no bucket: mean and quantiles count them as these.
    """
    count = sum(buckets.values())
    known = {key: n for key, n in buckets.items() if n}
    if unfinished_ns:
        buckets = dict(sorted((Counter(known) + Counter(bucketize(unfinished_ns))).items()))
    whole = sum(buckets.values())
    if not whole:
        return Distribution(name, label, phase, 0, None, [], [])
    mean_ns = sum((low + high) / 2 * n for (low, high), n in buckets.items()) / whole
    quantiles = [quantile(buckets, q) for q in (*wanted_quantiles(whole), 1.0)]
    if unfinished_ns:
        quantiles = [
            replace(one, value_ns=one.low_ns, at_least=True)
            if _is_least(one, known, count, whole)
            else one
            for one in quantiles
        ]
    elif units is not None and units.have_interval:
        quantiles = [
            replace(one, sampling=_sampling(one, buckets, by_unit, units)) if one.q < 1 else one
            for one in quantiles
        ]
    return Distribution(
        name,
        label,
        phase,
        count,
        mean_ns,
        quantiles,
        cumulate(known),
        unfinished_count=len(unfinished_ns),
        unfinished_ns=max(unfinished_ns, default=None),
    )


def _is_least(one: Quantile, known: Buckets, count: int, whole: int) -> bool:
    """Whether a quantile would be larger if all unfinished values were very long."""
    rank = one.q * whole
    return rank > count or quantile(known, rank / count).low_ns > one.low_ns


def _sampling(
    one: Quantile, buckets: Buckets, by_unit: Sequence[Buckets], units: Units
) -> Measure | None:
    """How far a quantile of all values together may be off: the units differ."""
    below = np.array([_below(mine, one.value_ns) for mine in by_unit])
    totals = np.array([float(sum(mine.values())) for mine in by_unit])
    none = np.zeros(len(totals))
    found = shares.quantile(
        one.q, lambda q: quantile(buckets, q).value_ns, below, none, totals, units
    ).measure()
    return None if found.low_ns is None else found


def _below(buckets: Buckets, value_ns: float) -> float:
    """How many values lie at or below one, within its bucket in proportion."""
    return sum(
        count * min(1.0, max(0.0, (value_ns - low) / (high - low)))
        for (low, high), count in buckets.items()
    )


def cumulate(buckets: Buckets) -> list[Bucket]:
    """The buckets with their cumulative share."""
    total = sum(buckets.values())
    lines = []
    below = 0
    for (low_ns, high_ns), count in sorted(buckets.items()):
        below += count
        lines.append(Bucket(low_ns, high_ns, count, below / total))
    return lines

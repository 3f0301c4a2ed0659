# SPDX-License-Identifier: GPL-2.0-only
"""Quantiles of wall times over many hosts, from added histograms.

Counts are scaled by recorded time / observed time, as all sums are. The interval of a quantile is
over hosts, as that of a recording is over its blocks (`statistics.shares`).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.fleet import histograms
from tlstax.analysis.fleet.engines.engine import BUCKETS, Engine
from tlstax.analysis.fleet.histograms import LEAST, MOST, SCALE
from tlstax.analysis.fleet.host_sums import Facts, Span, literal, numbered
from tlstax.analysis.model.fleet import Figure, LatencyLine, QuantileFigure
from tlstax.analysis.statistics import shares
from tlstax.analysis.statistics.units import Floats, rounds

QUANTILES: Final = (0.5, 0.95, 0.99)


class HostCounts(NamedTuple):
    """Scaled counts of one phase: a row for each host, a column for each bucket."""

    hosts: list[str]
    buckets: list[int]
    counts: Floats


def by_host(engine: Engine, span: Span, phase: str = "", host: str = "") -> dict[str, HostCounts]:
    """Scaled counts by phase, of one phase or all, and of one host or all."""
    conditions = [span.condition, f"scale = {SCALE:d}", "observed_ns > 0", "ended_count > 0"]
    conditions += [f"bucket >= {LEAST:d}", f"bucket <= {MOST:d}"]
    conditions += [f"phase = {literal(phase)}"] if phase else []
    conditions += [f"host = {literal(host)}"] if host else []
    found = engine.query(
        "SELECT phase, host, bucket, SUM(CAST(ended_count AS DOUBLE) * CAST(recorded_ns AS DOUBLE) "
        f"/ CAST(observed_ns AS DOUBLE)) AS ended_count FROM {BUCKETS} "
        f"WHERE {' AND '.join(conditions)} GROUP BY phase, host, bucket"
    )
    made = {}
    phases, at_phase = numbered(found["phase"])
    for number, name in enumerate(phases):
        rows = found.take(np.flatnonzero(at_phase == number))
        hosts, at_host = numbered(rows["host"])
        buckets, at_bucket = np.unique(rows["bucket"].to_numpy(), return_inverse=True)
        counts: Floats = np.zeros((len(hosts), len(buckets)))
        counts[at_host, at_bucket] = rows["ended_count"].to_numpy()
        made[name] = HostCounts(hosts, buckets.tolist(), counts)
    return made


def by_fact(
    engine: Engine, span: Span, known: Facts, hosts: set[str], fact: str, phase: str
) -> list[LatencyLine]:
    """One line for each value of a fact, in order of names."""
    found = by_host(engine, span, phase).get(phase)
    if found is None:
        return []
    grouped: dict[str, list[int]] = defaultdict(list)
    for row, host in enumerate(found.hosts):
        if host in hosts:
            grouped[known.get(host, {}).get(fact, "unknown") or "(none)"].append(row)
    return [
        line(group, phase, found.buckets, found.counts[rows])
        for group, rows in sorted(grouped.items())
    ]


def line(group: str, phase: str, buckets: Sequence[int], counts: Floats) -> LatencyLine:
    """Quantiles of the hosts of a group together; `counts` has a row for each."""
    figures = [QuantileFigure(q, _figure(q, buckets, counts)) for q in QUANTILES]
    return LatencyLine(group, phase, len(counts), float(counts.sum()), figures)


def _figure(q: float, buckets: Sequence[int], counts: Floats) -> Figure:
    whole = dict(zip(buckets, counts.sum(axis=0).tolist(), strict=True))

    def at(share: float) -> float:
        return histograms.quantile(whole, share) or 0.0

    below = counts @ histograms.parts_below(buckets, at(q))
    units = rounds(len(counts), "hosts")
    found = shares.quantile(q, at, below, np.zeros(len(counts)), counts.sum(axis=1), units)
    return Figure(found.value, found.low, found.high, found.unit_count or 0)

# SPDX-License-Identifier: GPL-2.0-only
"""Quantiles of wall times over many hosts, from added histograms.

Counts are scaled by recorded time / observed time, as all sums are. The interval of a quantile is
over hosts, as that of a recording is over its blocks (`statistics.shares`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tlstax.analysis.fleet import histograms
from tlstax.analysis.fleet.engines.engine import BUCKETS, Engine
from tlstax.analysis.fleet.histograms import SCALE
from tlstax.analysis.fleet.host_sums import Facts, Span
from tlstax.analysis.fleet.rollup.intervals import WALL
from tlstax.analysis.model.fleet import Figure, LatencyLine, QuantileFigure
from tlstax.analysis.statistics import shares
from tlstax.analysis.statistics.units import Floats, rounds
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

QUANTILES: Final = (0.5, 0.95, 0.99)
Counts = dict[int, float]
"""By bucket."""


def by_host(
    engine: Engine, span: Span, phase: str = "", host: str = ""
) -> dict[str, dict[str, Counts]]:
    """Scaled counts by phase and host, of one phase or all, and of one host or all."""
    observed = (
        "CASE WHEN phase_bucket.phase IN "
        f"({', '.join(literal(name) for name in (*HANDSHAKE_PHASES, WALL))}) "
        "THEN whole.handshake_observed_ns ELSE whole.ledger_observed_ns END"
    )
    conditions = [span.condition.replace("start_wall_ns", "phase_bucket.start_wall_ns")]
    conditions += [f"phase_bucket.scale = {SCALE:d}"]
    conditions += [f"phase_bucket.phase = {literal(phase)}"] if phase else []
    conditions += [f"phase_bucket.host = {literal(host)}"] if host else []
    found = engine.query(
        "SELECT host, phase, bucket, "
        "SUM(CASE WHEN observed_ns > 0 THEN CAST(ended_count AS DOUBLE) "
        "* CAST(recorded_ns AS DOUBLE) / CAST(observed_ns AS DOUBLE) ELSE 0 END) AS ended_count "
        "FROM (SELECT phase_bucket.host AS host, phase_bucket.phase AS phase, "
        "phase_bucket.bucket AS bucket, phase_bucket.ended_count AS ended_count, "
        f"whole.recorded_ns AS recorded_ns, {observed} AS observed_ns "
        f"FROM {BUCKETS} INNER JOIN interval whole ON phase_bucket.host = whole.host "
        "AND phase_bucket.start_wall_ns = whole.start_wall_ns "
        "AND phase_bucket.source_id = whole.source_id "
        f"WHERE {' AND '.join(conditions)}) counted GROUP BY host, phase, bucket"
    )
    made: dict[str, dict[str, Counts]] = defaultdict(lambda: defaultdict(dict))
    columns = (found[name].to_pylist() for name in ("phase", "host", "bucket", "ended_count"))
    for one_phase, one_host, bucket, count in zip(*columns, strict=True):
        if count > 0:
            made[one_phase][one_host][bucket] = count
    return made


def literal(text: str) -> str:
    """A text as an SQL literal. Engines read a backslash differently; no name has one."""
    return "'" + text.replace("\\", "").replace("'", "''") + "'"


def by_fact(
    engine: Engine, span: Span, known: Facts, hosts: set[str], fact: str, phase: str
) -> list[LatencyLine]:
    """One line for each value of a fact, in order of names."""
    counts = by_host(engine, span, phase).get(phase, {})
    grouped: dict[str, list[Counts]] = defaultdict(list)
    for host, mine in counts.items():
        if host in hosts:
            grouped[known.get(host, {}).get(fact, "unknown") or "(none)"].append(mine)
    return [line(group, phase, parts) for group, parts in sorted(grouped.items())]


def line(group: str, phase: str, parts: Sequence[Counts]) -> LatencyLine:
    """Quantiles of the hosts of a group together."""
    whole: Counts = defaultdict(float)
    for part in parts:
        for bucket, count in part.items():
            whole[bucket] += count
    return LatencyLine(
        group,
        phase,
        len(parts),
        sum(whole.values()),
        [QuantileFigure(q, _figure(q, whole, parts)) for q in QUANTILES],
    )


def _figure(q: float, whole: Mapping[int, float], parts: Sequence[Counts]) -> Figure:
    def at(share: float) -> float:
        return histograms.quantile(whole, share) or 0.0

    value_ns = at(q)
    below: Floats = np.array([histograms.below(part, value_ns) for part in parts])
    totals: Floats = np.array([sum(part.values()) for part in parts])
    units = rounds(len(parts), "hosts")
    found = shares.quantile(q, at, below, np.zeros(len(parts)), totals, units)
    return Figure(found.value, found.low, found.high, found.unit_count or 0)

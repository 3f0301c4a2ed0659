# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet top`: which hosts have most of something, and which findings most hosts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tlstax.analysis import quantities
from tlstax.analysis.fleet import columns, host_sums, latencies, metrics
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.figures import LEAST_SPREAD, far_out, figure, value_text
from tlstax.analysis.fleet.host_sums import Facts, Span, Sums
from tlstax.analysis.fleet.metrics import BY_NAME, SUMS, Metric
from tlstax.analysis.fleet.question import Question, facts_of
from tlstax.analysis.fleet.rollup.record_split import LEAST_SAMPLES
from tlstax.analysis.model.fleet import (
    FLEET_VERSION,
    Figure,
    FindingLine,
    FleetTop,
    HostLine,
    HostRange,
)
from tlstax.analysis.statistics.units import Floats

_OUTLIERS_MAX: Final = 50
_RANGES: Final = 20
_SHARE_MOST: Final = 1e6
"""No recording has a finding with a larger share: such a row is damaged."""
_NO_BOUNDS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType({})
_ADDED_UP: Final = ("cpus", "per_second")


def top(question: Question, metric: Metric, most: int, group_by: str, phase: str) -> FleetTop:
    """The ranking. Raises TlstaxError (USAGE) where there is nothing to rank."""
    span = question.span()
    tier = question.tier_for(span)
    tables = [columns.Interval, columns.Host, columns.Finding]
    tables += [columns.PhaseLatency] if group_by else []
    needs_records = SUMS[metric.above].when == "record"
    tables += [columns.RecordSplit] if needs_records else []
    with question.ask(span, tier, tables) as (engine, left_out):
        known = host_sums.facts(engine, span)
        hosts = host_sums.chosen(known, question.hosts)
        wanted = [metric, *([BY_NAME["record_crypto_ns"]] if needs_records else [])]
        sums = host_sums.kept(host_sums.over(engine, span, wanted), hosts)
        bounds = _bounds_of_records(engine, span, sums, metric) if needs_records else {}
        found = findings(engine, span, hosts)
        grouped = latencies.by_fact(engine, span, known, hosts, group_by, phase) if group_by else []
    left_out += question.lacking(span, tier, hosts, sums.hosts)
    values = sums.of(metric)
    lines, far_count = _lines(question, metric, sums.hosts, values, known, most, bounds)
    fleet = figure(values)
    ordered = values[np.isfinite(values)]
    return FleetTop(
        FLEET_VERSION,
        f"Hosts by {metric.label}",
        question.scope(span, tier, len(sums.hosts), left_out),
        _sentence(metric, lines, far_count, fleet),
        facts_of(metric),
        fleet,
        float(ordered.sum()) if metric.unit in _ADDED_UP else None,
        lines[:most],
        [line for line in lines if line.is_outlier][:_OUTLIERS_MAX],
        _ranges(ordered),
        found,
        grouped,
    )


def _bounds_of_records(
    engine: Engine, span: Span, sums: Sums, metric: Metric
) -> dict[str, tuple[float, float]]:
    """The bounds of a metric that record crypto is a part of, by host with an estimate.

    Relative errors of hours are taken to go the same way: the bounds of a sum are wider than they
    need be. What was split at boundaries of records has no bounds.
    """
    rows = engine.query(
        "SELECT host, SUM(CAST(record_crypto_ns AS DOUBLE)) AS crypto_ns, "
        "SUM(CAST(low_ns AS DOUBLE)) AS low_ns, SUM(CAST(high_ns AS DOUBLE)) AS high_ns "
        f"FROM record_split WHERE {host_sums.in_hours(span).condition} GROUP BY host"
    ).to_pylist()
    place = {host: at for at, host in enumerate(sums.hosts)}
    values, records_ns = sums.of(metric), sums.by_name["records_ns"]
    whole_ns = sums.by_name[metric.above]
    made = {}
    for row in rows:
        at = place.get(row["host"], -1)
        if at < 0 or not np.isfinite(values[at]) or not whole_ns[at] or not row["crypto_ns"]:
            continue
        part = values[at] * records_ns[at] / whole_ns[at]
        low, high = (
            float(part * (row[end] / row["crypto_ns"] - 1)) for end in ("low_ns", "high_ns")
        )
        made[row["host"]] = float(values[at]) + low, float(values[at]) + high
    return made


def _lines(
    question: Question,
    metric: Metric,
    hosts: Sequence[str],
    values: Floats,
    known: Facts,
    most: int,
    bounds: Mapping[str, tuple[float, float]] = _NO_BOUNDS,
) -> tuple[list[HostLine], int]:
    """The hosts that are shown, the largest first, and how many are far above the others."""
    bound = far_out(metric, values)[1]
    plain = values.tolist()
    order = sorted(
        np.flatnonzero(np.isfinite(values)).tolist(), key=lambda row: (-plain[row], hosts[row])
    )
    far_count = int((values[order] > bound).sum())
    lines = [
        HostLine(
            host=hosts[row],
            cluster=known.get(hosts[row], {}).get("cluster", ""),
            server=server_of(known, hosts[row]),
            tls_library=known.get(hosts[row], {}).get("tls_library", "unknown"),
            value=plain[row],
            is_outlier=bool(plain[row] > bound),
            report=question.report(hosts[row]),
            low=bounds[hosts[row]][0] if hosts[row] in bounds else None,
            high=bounds[hosts[row]][1] if hosts[row] in bounds else None,
        )
        for row in order[: max(most, min(far_count, _OUTLIERS_MAX))]
    ]
    return lines, far_count


def server_of(known: Facts, host: str) -> str:
    """Kind and version of a host's server."""
    mine = known.get(host, {})
    return f"{mine.get('server', 'unknown')} {mine.get('server_version', '')}".strip()


def _ranges(ordered: Floats) -> list[HostRange]:
    """Hosts by value, in ranges of one width; of equal values there is one range."""
    known = ordered[np.isfinite(ordered)]
    if not len(known):
        return []
    low, high = float(known.min()), float(known.max())
    if high - low <= LEAST_SPREAD * max(abs(low), abs(high)):
        return [HostRange(low, high, len(known))]
    counts, edges = np.histogram(known, bins=_RANGES)
    return [
        HostRange(float(low), float(high), int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def _sentence(metric: Metric, lines: Sequence[HostLine], far_count: int, fleet: Figure) -> str:
    if not lines or fleet.value is None:
        text = f"No host was seen enough for {metric.label}."
        if SUMS[metric.above].when == "record":
            text += (
                " Records are split where their boundaries were probed, or at level flow by CPU "
                f"samples of commands: {LEAST_SAMPLES:,} in a recording, or in an hour of raw "
                "windows of a watch. Rank by handshake_cpus instead (--by)."
            )
        return text
    first = lines[0]
    text = quantities.plain(value_text(metric.unit, first.value))
    middle = quantities.plain(value_text(metric.unit, fleet.value))
    far = f"; {far_count:,} are far above the others" if far_count else ""
    hosts = "hosts have" if fleet.host_count != 1 else "host has"
    return (
        f"{metric.label[0].upper()}{metric.label[1:]}: {first.host} has most, {text}; "
        f"{fleet.host_count:,} {hosts} a median of {middle}{far}."
    )


def findings(engine: Engine, span: Span, hosts: set[str]) -> list[FindingLine]:
    """Findings by the number of hosts that have them."""
    by_finding = _shares(engine, span, hosts)
    lines = [
        FindingLine(
            name,
            len(mine),
            figure(np.array(list(mine.values()))),
            sorted(mine, key=lambda host: (-mine[host], host))[:5],
        )
        for name, mine in by_finding.items()
    ]
    return sorted(lines, key=lambda line: (-line.host_count, line.finding))


def _shares(engine: Engine, span: Span, hosts: set[str]) -> dict[str, dict[str, float]]:
    """By finding and host: the share of the time of connections of all hours that were recorded.

    Each hour, or recording, weighs as much as it served in its recorded time; without the finding
    it counts as 0. Of several workloads of an experiment the largest share is taken. A host whose
    time of connections was not recorded has 0, too.
    """
    within = host_sums.in_hours(span).condition
    served = (
        "SELECT host, source_id, SUM(CASE WHEN ledger_observed_ns > 0 "
        "THEN CAST(served_ns AS DOUBLE) * CAST(recorded_ns AS DOUBLE) "
        "/ CAST(ledger_observed_ns AS DOUBLE) ELSE 0 END) AS weight_ns "
        f"FROM interval WHERE {within} GROUP BY host, source_id"
    )
    found = engine.query(
        "SELECT finding, host, SUM(largest * weight_ns) AS part_ns FROM (SELECT "
        "found.finding AS finding, found.host AS host, found.largest AS largest, "
        "COALESCE(served.weight_ns, 0) AS weight_ns FROM "
        f"(SELECT finding, host, source_id, MAX(share) AS largest FROM finding WHERE {within} "
        f"AND share > -{_SHARE_MOST:.0f} AND share < {_SHARE_MOST:.0f} "  # neither is true of NaN
        f"GROUP BY finding, host, source_id) found LEFT JOIN ({served}) served "
        "ON found.host = served.host AND found.source_id = served.source_id) weighed "
        "GROUP BY finding, host"
    )
    wholes = engine.query(
        f"SELECT host, SUM(weight_ns) AS whole_ns FROM ({served}) served GROUP BY host"
    )
    whole_ns = {row["host"]: row["whole_ns"] for row in wholes.to_pylist()}
    made: dict[str, dict[str, float]] = defaultdict(dict)
    for row in found.to_pylist():
        if row["host"] in hosts:
            whole = whole_ns.get(row["host"], 0.0)
            made[row["finding"]][row["host"]] = row["part_ns"] / whole if whole else 0.0
    return made


def by_finding(question: Question, finding: str, most: int) -> FleetTop:
    """The hosts that have a finding, ranked by its share of the time of connections."""
    span = question.span()
    tables = [columns.Interval, columns.Host, columns.Finding]
    with question.ask(span, "1h", tables) as (engine, left_out):
        known = host_sums.facts(engine, span)
        hosts = host_sums.chosen(known, question.hosts)
        mine = _shares(engine, span, hosts).get(finding, {})
        found = findings(engine, span, hosts)
    names = sorted(mine)
    values: Floats = np.array([mine[name] for name in names], dtype=np.float64)
    metric = _finding_metric(finding)
    lines, far_count = _lines(question, metric, names, values, known, most)
    return FleetTop(
        FLEET_VERSION,
        f"Hosts with the finding {finding}",
        question.scope(span, "1h", len(hosts), left_out),
        _sentence(metric, lines, far_count, figure(values)),
        facts_of(metric),
        figure(values),
        None,
        lines[:most],
        [line for line in lines if line.is_outlier][:_OUTLIERS_MAX],
        _ranges(values),
        found,
    )


def _finding_metric(finding: str) -> Metric:
    """No share of a finding is too small to count."""
    label = f"{finding}, share of the time of connections"
    return metrics.BY_NAME["tls_share"]._replace(name=finding, label=label, least_change=0.0)

# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet explain`: one host among its peers, and what its recordings found."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.fleet import columns, host_sums, latencies, networks
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.figures import far_out, figure, hosts_text, value_text
from tlstax.analysis.fleet.host_sums import FACTS, Facts, Span, Sums, literal
from tlstax.analysis.fleet.metrics import METRICS
from tlstax.analysis.fleet.question import Question, facts_of, moment
from tlstax.analysis.model.fleet import (
    FLEET_VERSION,
    FleetExplanation,
    HandshakeLine,
    HostFinding,
    HostVersion,
    PeerLine,
    PhaseLine,
)
from tlstax.analysis.rows.ledger import SERVED_PHASES

_LIKE: Final = ("cluster", "tls_library", "server_version")
"""Facts that may make hosts peers: the first one that the host has, and shares with others."""
_FINDINGS_MAX: Final = 10


def explain(question: Question, host: str) -> FleetExplanation:
    """The host among its peers. Raises TlstaxError (USAGE) where the data set lacks it."""
    span = question.span()
    tier = question.tier_for(span)
    tables = (columns.Interval, columns.Host, columns.Finding, columns.Ledger, columns.Handshake)
    asked = (*tables, columns.PhaseLatency, columns.ClientNet)
    with question.ask(span, tier, asked) as (engine, left_out):
        known = host_sums.facts(engine, span)
        if host not in known:
            raise TlstaxError(
                f"the data set has no host {host} in this span of time",
                f"it has {hosts_text(len(known))}: {', '.join(sorted(known)[:3])}",
                "Name one of them; `tlstax fleet top` lists them",
                ExitCode.USAGE,
            )
        others, peers = _peers(host, known, host_sums.chosen(known, question.hosts) | {host})
        sums = host_sums.kept(host_sums.over(engine, span, among={*others, host}), {*others, host})
        versions = _versions(engine, span, host)
        found = _findings(engine, span, host)
        phases = _phases(engine, span, host)
        shakes = _handshakes(engine, span, host)
        walls = latencies.by_host(engine, span, host=host)
        of_clients = networks.of_host(engine, span, host)
    left_out += question.lacking(span, tier, {*others, host}, sums.hosts)
    lines = _lines(sums, host)
    return FleetExplanation(
        FLEET_VERSION,
        f"{host} among its peers",
        question.scope(span, tier, len(sums.hosts), left_out),
        host,
        peers,
        _sentence(host, lines, peers, has_interval=host in sums.hosts),
        question.report(host),
        versions,
        lines,
        found,
        phases,
        shakes,
        [latencies.line(host, phase, mine.buckets, mine.counts) for phase, mine in walls.items()],
        of_clients,
    )


def _peers(host: str, known: Facts, among: set[str]) -> tuple[set[str], str]:
    """The hosts that it is compared with, without itself, and who they are."""
    for name in _LIKE:
        value = known[host][name]
        alike = {one for one in among if known[one][name] == value and one != host}
        if value and alike:
            label = {"cluster": "cluster", "tls_library": "TLS library"}.get(name, "server")
            return alike, f"{_others(len(alike))} of {label} {value}"
    others = among - {host}
    return others, _others(len(others))


def _others(count: int) -> str:
    return f"{count:,} other host{'s' if count != 1 else ''}"


def _lines(sums: Sums, host: str) -> list[PeerLine]:
    own = sums.hosts.index(host) if host in sums.hosts else -1
    others = np.arange(len(sums.hosts)) != own
    lines = []
    for metric in METRICS:
        values = sums.of(metric)
        mine = float(values[own]) if own >= 0 else float("nan")
        known = bool(np.isfinite(mine))
        low, high = far_out(metric, values[others])
        lines.append(
            PeerLine(
                facts_of(metric),
                mine if known else None,
                figure(values[others]),
                1 + int((values[others] > mine).sum()) if known else 0,
                known and not low <= mine <= high,
            )
        )
    return lines


def _sentence(host: str, lines: Sequence[PeerLine], peers: str, *, has_interval: bool) -> str:
    if not has_interval:
        return (
            f"{host} has no values here: the data set knows it, but no interval of it lies in this "
            "span of time. Ask for another one (--from, --to)."
        )
    if all(line.value is None for line in lines):
        return (
            f"{host} has no values here: in this span of time too little of it was observed for "
            "any figure. Ask for a longer one (--from, --to)."
        )
    if not any(line.peers.host_count for line in lines):
        return f"{host} cannot be compared: no other host has values here ({peers})."
    odd = [line for line in lines if line.is_outlier]
    if not odd:
        return f"{host} is like its peers ({peers})."
    parts = [
        f"{line.metric.label} {quantities.plain(value_text(line.metric.unit, line.value))} "
        f"(median of the others: "
        f"{quantities.plain(value_text(line.metric.unit, line.peers.value))})"
        for line in odd[:3]
    ]
    return f"{host} differs from its peers ({peers}): {'; '.join(parts)}."


def _versions(engine: Engine, span: Span, host: str) -> list[HostVersion]:
    """Facts whenever they changed."""
    rows = engine.query(
        f"SELECT first_wall_ns, {', '.join(FACTS)} FROM host "
        f"WHERE {host_sums.in_hours(span).condition} AND host = {literal(host)} "
        "ORDER BY first_wall_ns"
    ).to_pylist()
    found: list[HostVersion] = []
    before: dict[str, str] = {}
    for row in rows:
        facts = {name: str(row[name]) for name in FACTS}
        changed = {name: text for name, text in facts.items() if before.get(name) != text}
        if changed:
            found.append(HostVersion(moment(row["first_wall_ns"]), changed))
        before = facts
    return found


def _findings(engine: Engine, span: Span, host: str) -> list[HostFinding]:
    rows = engine.query(
        "SELECT finding, sentence, share, start_wall_ns FROM finding "
        f"WHERE {host_sums.in_hours(span).condition} AND host = {literal(host)} "
        "ORDER BY start_wall_ns DESC, share DESC, finding"
    ).to_pylist()
    return [
        HostFinding(row["finding"], row["sentence"], row["share"], moment(row["start_wall_ns"]))
        for row in rows[:_FINDINGS_MAX]
    ]


def _phases(engine: Engine, span: Span, host: str) -> list[PhaseLine]:
    waits = " + ".join(
        f"ledger.{name}" for name in columns.Ledger._fields[6:] if name.endswith("_ns")
    )
    condition = (
        f"{span.condition_of('whole.start_wall_ns')} AND whole.host = {literal(host)} "
        "AND whole.ledger_observed_ns > 0"
    )
    scale = "CAST(whole.recorded_ns AS DOUBLE) / CAST(whole.ledger_observed_ns AS DOUBLE)"
    rows = engine.query(
        f"SELECT phase, SUM(CAST(ledger.on_cpu_ns AS DOUBLE) * {scale}) AS on_cpu_ns, "
        f"SUM(CAST({waits} AS DOUBLE) * {scale}) AS waiting_ns FROM ledger INNER JOIN interval "
        "whole ON ledger.host = whole.host AND ledger.start_wall_ns = whole.start_wall_ns "
        f"AND ledger.source_id = whole.source_id WHERE {condition} GROUP BY phase"
    ).to_pylist()
    seconds = engine.query(
        "SELECT SUM(CAST(recorded_ns AS DOUBLE)) AS recorded_ns FROM interval whole "
        f"WHERE {condition}"
    ).to_pylist()[0]["recorded_ns"]
    lines = [
        PhaseLine(row["phase"], row["on_cpu_ns"] / seconds * 1e9, row["waiting_ns"] / seconds * 1e9)
        for row in rows
        if row["phase"] in SERVED_PHASES and seconds
    ]
    return sorted(lines, key=lambda line: (-line.on_cpu_ns - line.waiting_ns, line.phase))


def _handshakes(engine: Engine, span: Span, host: str) -> list[HandshakeLine]:
    kinds = ("outcome", "tls_version", "cipher", "group_name", "resumption")
    names = ", ".join(kinds)
    rows = engine.query(
        f"SELECT {names}, CAST(SUM(handshake_count) AS BIGINT) AS handshake_count, "
        f"SUM(CAST(wall_ns AS DOUBLE)) AS wall_ns FROM handshake WHERE {span.condition} "
        f"AND host = {literal(host)} GROUP BY {names} ORDER BY {names}"
    ).to_pylist()
    return [
        HandshakeLine(
            *(row["outcome"], row["tls_version"], row["cipher"], row["group_name"]),
            *(row["resumption"], row["handshake_count"], _mean(row)),
        )
        for row in sorted(rows, key=lambda row: -row["handshake_count"])
    ]


def _mean(row: dict[str, Any]) -> float | None:
    good = row["outcome"] == "success" and row["handshake_count"]
    return row["wall_ns"] / row["handshake_count"] if good else None

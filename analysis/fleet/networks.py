# SPDX-License-Identifier: GPL-2.0-only
"""Client networks: those of a host, and those that resume or fail otherwise than before."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tlstax.analysis.fleet import metric_changes
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.figures import HOSTS
from tlstax.analysis.fleet.host_sums import Span, literal, numbered
from tlstax.analysis.fleet.metrics import BY_NAME, Metric
from tlstax.analysis.model.fleet import ChangeGroup, NetworkLine
from tlstax.analysis.quantities import share_text
from tlstax.analysis.statistics import medians, verdicts
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats, Units, rounds

Places = npt.NDArray[np.int64]

_COUNTS: Final = ("full_count", "resumed_count", "failed_count")
_SUMS: Final = {
    "resumed_share": ("resumed_count", _COUNTS[:2]),
    "failed_share": ("failed_count", _COUNTS),
}
"""What is divided by the sum of what."""
_CAUSES: Final = {
    ("resumed_share", verdicts.LESS): "these clients no longer keep or send their sessions",
    ("resumed_share", verdicts.MORE): "these clients keep their sessions now",
    ("failed_share", verdicts.MORE): "these clients refuse the certificate, version or ciphers",
    ("failed_share", verdicts.LESS): "",
}
_VERBS: Final = {"resumed_share": "of handshakes resume", "failed_share": "of handshakes fail"}


class _Test(NamedTuple):
    network: str
    metric: Metric
    hosts: list[str]
    sides: tuple[Floats, Floats]
    """As statistics take them: a first place that they do not use, then the hosts."""
    units: Units
    p: float | None
    """Against no change."""
    p_counting: float | None
    """Against a change that is too small to count."""


class _Pairs(NamedTuple):
    """Hosts that know a network on both sides: in order of the networks' names, then of theirs."""

    networks: list[str]
    hosts: list[str]
    network_of: Places
    host_of: Places
    sides: tuple[Mapping[str, Floats], Mapping[str, Floats]]
    """Sums by name."""


def changes(engine: Engine, before: Span, after: Span, hosts: set[str]) -> list[ChangeGroup]:
    """The networks that changed, of those that 8 hosts or more know on both sides.

    The unit is the host. Empty where no address prefix was recorded.
    """
    pairs = _paired(_sums(engine, before, after), hosts)
    tests = [test for name in _SUMS for test in _tests(pairs, BY_NAME[name])]
    tests.sort(key=lambda test: test.network)
    known = [test.p_counting for test in tests if test.p_counting is not None]
    bound = verdicts.largest_counting(known)
    groups = []
    for test in tests:
        if bound is None or test.p_counting is None or test.p_counting > bound:
            continue
        units = test.units, test.units
        found = medians.difference(*test.sides, units, is_paired=True)
        verdict = verdicts.judge(found)
        is_large = abs(found.value) >= test.metric.least_change
        if is_large and verdict in (verdicts.MORE, verdicts.LESS):
            groups.append(_group(test, found, verdict))
    return groups


def of_host(engine: Engine, span: Span, host: str) -> list[NetworkLine]:
    """The networks of the clients of a host, as far as they were recorded."""
    names = ("connection_count", *_COUNTS)
    parts = ", ".join(f"CAST(SUM({name}) AS BIGINT) AS {name}" for name in names)
    rows = engine.query(
        f"SELECT network, {parts} FROM client_net WHERE {span.condition} "
        f"AND host = {literal(host)} GROUP BY network ORDER BY network"
    ).to_pylist()
    least = BY_NAME["resumed_share"].least_below
    return [
        NetworkLine(
            row["network"],
            row["connection_count"],
            row["full_count"],
            row["resumed_count"],
            row["failed_count"],
            not row["resumed_count"] and row["full_count"] >= least,
        )
        for row in sorted(rows, key=lambda row: -row["connection_count"])
    ]


def _sums(engine: Engine, before: Span, after: Span) -> Any:
    """Handshakes by network and host, and whether they were after the change."""
    parts = ", ".join(f"SUM(CAST({name} AS DOUBLE)) AS {name}" for name in _COUNTS)
    is_after = f"CASE WHEN {after.condition} THEN 1 ELSE 0 END"
    return engine.query(
        f"SELECT network, host, {is_after} AS is_after, {parts} FROM client_net "
        f"WHERE ({before.condition}) OR ({after.condition}) GROUP BY network, host, {is_after}"
    )


def _paired(found: Any, hosts: set[str]) -> _Pairs:
    """What both sides have of these hosts."""
    networks, network_of = numbered(found["network"])
    names, host_of = numbered(found["host"])
    keys = network_of * max(len(names), 1) + host_of
    is_after = found["is_after"].to_numpy() == 1
    first_rows, second_rows = np.flatnonzero(~is_after), np.flatnonzero(is_after)
    _, *at = np.intersect1d(
        keys[first_rows], keys[second_rows], assume_unique=True, return_indices=True
    )
    first_rows, second_rows = first_rows[at[0]], second_rows[at[1]]
    is_chosen = np.array([name in hosts for name in names], dtype=bool)
    is_kept = is_chosen[host_of[first_rows]]
    first_rows, second_rows = first_rows[is_kept], second_rows[is_kept]
    sides = (
        {name: found[name].to_numpy()[first_rows] for name in _COUNTS},
        {name: found[name].to_numpy()[second_rows] for name in _COUNTS},
    )
    return _Pairs(networks, names, network_of[first_rows], host_of[first_rows], sides)


def _tests(pairs: _Pairs, metric: Metric) -> Iterator[_Test]:
    """A test of each network that enough hosts know."""
    above, below = _SUMS[metric.name]
    whole = [np.sum([side[name] for name in below], axis=0) for side in pairs.sides]
    enough = np.flatnonzero(np.minimum(whole[0], whole[1]) >= metric.least_below)
    shares = [side[above][enough] / of[enough] for side, of in zip(pairs.sides, whole, strict=True)]
    networks, starts = np.unique(pairs.network_of[enough], return_index=True)
    for network, rows in zip(networks, np.split(np.arange(len(enough)), starts[1:]), strict=False):
        units = rounds(len(rows), HOSTS)
        if units.have_interval:
            first, second = (np.append([np.nan], side[rows]) for side in shares)
            p, p_counting = (
                verdicts.p_value(first, second, (units, units), is_paired=True, least=least)
                for least in (0.0, metric.least_change)
            )
            names = [pairs.hosts[at] for at in pairs.host_of[enough[rows]]]
            sides = first, second
            yield _Test(pairs.networks[network], metric, names, sides, units, p, p_counting)


def _group(test: _Test, found: Estimate, verdict: str) -> ChangeGroup:
    sides = test.sides[0][1:], test.sides[1][1:]
    line = metric_changes.change_of(test.metric, found, test.p, sides, verdict)
    line = replace(line, is_counting=True)
    ends = f"{share_text(line.before or 0.0)} → {share_text(line.after or 0.0)}"
    return ChangeGroup(
        "network",
        f"Clients of {test.network}: {ends} {_VERBS[test.metric.name]} "
        f"(median of {len(test.hosts):,} hosts).",
        f"{verdict} {test.metric.label} by clients of {test.network}",
        _CAUSES[test.metric.name, verdict],
        test.metric.name,
        len(test.hosts),
        test.hosts,
        [line],
        [],
    )

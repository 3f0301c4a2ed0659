# SPDX-License-Identifier: GPL-2.0-only
"""Client networks that resume, or fail, more or less often than before."""

from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.fleet import metric_changes
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.figures import HOSTS
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.metrics import BY_NAME, Metric
from tlstax.analysis.model.fleet import ChangeGroup
from tlstax.analysis.quantities import share_text
from tlstax.analysis.statistics import medians, verdicts
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats, Units, rounds

_SUMS: Final = {
    "resumed_share": ("resumed_count", "full_count + resumed_count"),
    "failed_share": ("failed_count", "full_count + resumed_count + failed_count"),
}
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
    estimate: Estimate
    p: float | None


def changes(engine: Engine, before: Span, after: Span, hosts: set[str]) -> list[ChangeGroup]:
    """The networks that changed, of those that 8 hosts or more know on both sides.

    The unit is the host. Empty where no address prefix was recorded.
    """
    sums = [_sums(engine, span) for span in (before, after)]
    tests = [
        test
        for network in sorted(sums[0].keys() & sums[1].keys())
        for name in _SUMS
        if (test := _test(network, name, sums[0][network], sums[1][network], hosts)) is not None
    ]
    judged = verdicts.judge_all([(test.estimate, test.p) for test in tests])
    return [
        _group(test, verdict)
        for test, verdict in zip(tests, judged, strict=True)
        if verdict in (verdicts.MORE, verdicts.LESS)
        and abs(test.estimate.value) >= test.metric.least_change
    ]


Counts = dict[str, dict[str, tuple[float, float]]]
"""Above and below by host and metric."""


def _sums(engine: Engine, span: Span) -> dict[str, Counts]:
    """By network."""
    parts = ", ".join(
        f"SUM(CAST({text} AS DOUBLE)) AS {name}_{place}"
        for name, texts in _SUMS.items()
        for place, text in zip(("above", "below"), texts, strict=True)
    )
    found = engine.query(
        f"SELECT network, host, {parts} FROM client_net WHERE {span.condition} "
        "GROUP BY network, host"
    )
    made: dict[str, Counts] = defaultdict(dict)
    for row in found.to_pylist():
        made[row["network"]][row["host"]] = {
            name: (row[f"{name}_above"], row[f"{name}_below"]) for name in _SUMS
        }
    return made


def _test(network: str, name: str, before: Counts, after: Counts, hosts: set[str]) -> _Test | None:
    """The hosts that know the network on both sides, paired; None for fewer than 8."""
    metric = BY_NAME[name]
    both = sorted(
        host
        for host in before.keys() & after.keys() & hosts
        if min(side[host][name][1] for side in (before, after)) >= metric.least_below
    )
    units = Units(len(both), HOSTS)
    if not units.have_interval:
        return None
    sides = tuple(
        np.array([np.nan, *(side[host][name][0] / side[host][name][1] for host in both)])
        for side in (before, after)
    )
    pair = rounds(len(both), HOSTS), rounds(len(both), HOSTS)
    return _Test(
        network,
        metric,
        both,
        (sides[0][1:], sides[1][1:]),
        medians.difference(sides[0], sides[1], pair, is_paired=True),
        verdicts.p_value(sides[0], sides[1], pair, is_paired=True),
    )


def _group(test: _Test, verdict: str) -> ChangeGroup:
    line = metric_changes.change_of(test.metric, test.estimate, test.p, test.sides, verdict)
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

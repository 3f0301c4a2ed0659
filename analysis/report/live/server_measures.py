# SPDX-License-Identifier: GPL-2.0-only
"""The measures of all servers of a watch: one of each name, with a point for each server."""

from collections.abc import Mapping
from typing import NamedTuple

from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.report.live.measures import Measure, distributions, measures


class Buckets(NamedTuple):
    """A histogram of one server."""

    labels: tuple[str, ...]
    counts: Mapping[int, int]
    sum_ns: float


class Histograms(NamedTuple):
    """Those of a name."""

    name: str
    text: str
    labels: tuple[str, ...]
    points: tuple[Buckets, ...]


def all_measures(servers: ServerCounters) -> list[Measure]:
    """All but the histograms."""
    found: dict[str, Measure] = {}
    for of_server, made in servers.read(lambda counters: list(measures(counters))):
        for one in made:
            before = found.get(one.name)
            points = tuple(((*of_server, *labels), value) for labels, value in one.points)
            found[one.name] = one._replace(
                labels=(*servers.labels, *one.labels),
                points=(*(before.points if before else ()), *points),
            )
    return list(found.values())


def all_histograms(servers: ServerCounters) -> list[Histograms]:
    """The histograms."""
    found: dict[str, Histograms] = {}
    for of_server, made in servers.read(lambda counters: list(distributions(counters))):
        for one in made:
            known = found.get(one.name, Histograms(one.name, one.text, servers.labels, ()))
            point = Buckets(of_server, one.counts, one.sum_ns)
            found[one.name] = known._replace(points=(*known.points, point))
    return list(found.values())

# SPDX-License-Identifier: GPL-2.0-only
"""The measures of all servers of a watch: one of each name, with a point for each server."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.report.live.measures import Distribution, Measure, distributions, measures


class Point(NamedTuple):
    """A value of one server."""

    labels: tuple[str, ...]
    value: float
    begun_ns: int
    """Since when it is counted, in ns since 1970."""


class Points(NamedTuple):
    """The values of a metric."""

    name: str
    kind: Literal["counter", "gauge", "info"]
    text: str
    labels: tuple[str, ...]
    points: tuple[Point, ...]


class Buckets(NamedTuple):
    """A histogram of one server."""

    labels: tuple[str, ...]
    counts: Mapping[int, int]
    sum_ns: float
    begun_ns: int
    """As that of a point."""


class Histograms(NamedTuple):
    """Those of a name."""

    name: str
    text: str
    labels: tuple[str, ...]
    points: tuple[Buckets, ...]


def read_all(servers: ServerCounters) -> tuple[list[Points], list[Histograms]]:
    """The metrics of all servers; all of a server are of one instant."""
    found: dict[str, Points] = {}
    histograms: dict[str, Histograms] = {}
    for of_server, (begun_ns, made, made_histograms) in servers.read(_read):
        for one in made:
            known = found.get(one.name) or Points(
                one.name, one.kind, one.text, (*servers.labels, *one.labels), ()
            )
            points = (Point((*of_server, *labels), value, begun_ns) for labels, value in one.points)
            found[one.name] = known._replace(points=(*known.points, *points))
        for each in made_histograms:
            others = histograms.get(each.name) or Histograms(
                each.name, each.text, servers.labels, ()
            )
            point = Buckets(of_server, each.counts, each.sum_ns, begun_ns)
            histograms[each.name] = others._replace(points=(*others.points, point))
    return list(found.values()), list(histograms.values())


def _read(counters: Counters) -> tuple[int, list[Measure], list[Distribution]]:
    return counters.begun_ns, list(measures(counters)), list(distributions(counters))

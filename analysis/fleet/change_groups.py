# SPDX-License-Identifier: GPL-2.0-only
"""Hosts that changed in the same way, as one statement each."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tlstax.analysis import quantities
from tlstax.analysis.fleet import figures, metric_changes
from tlstax.analysis.fleet.figures import value_text
from tlstax.analysis.fleet.host_sums import Facts, Sums, kept
from tlstax.analysis.fleet.metrics import BY_NAME, Metric
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.model.fleet import ChangeGroup, HostChange, MetricChange
from tlstax.analysis.statistics import verdicts
from tlstax.collectors.capture.order_statistics import LEAST_UNITS

_LINES_MAX: Final = 50
_NAMED_MAX: Final = 5
"""Hosts that a sentence names."""
_COMPARED: Final = ("server", "server_version", "tls_library", "kernel", "cpu_model", "cpu_count")
"""Facts whose change is told."""
_FACT_NAMES: Final = {"tls_library": "TLS library", "cpu_model": "CPU", "cpu_count": "CPUs"}
_CAUSES: Final[Mapping[tuple[str, str], str]] = {
    ("sign_ns", verdicts.MORE): "a longer key, another kind of key, or slower code for it",
    ("sign_ns", verdicts.LESS): "a shorter key, another kind of key, or faster code for it",
    ("resumed_share", verdicts.LESS): (
        "session tickets or the cache turned off, their key not shared, or other clients"
    ),
    ("resumed_share", verdicts.MORE): "session tickets or a cache turned on, or other clients",
    ("failed_share", verdicts.MORE): "a certificate, version or cipher that clients refuse",
    ("commands_per_connection", verdicts.LESS): "pooling turned off, or clients that reconnect",
    ("commands_per_connection", verdicts.MORE): "pooling, or clients that stay connected",
    ("record_crypto_ns", verdicts.MORE): "another cipher, larger results, or slower code for it",
    ("record_crypto_ns", verdicts.LESS): "another cipher, smaller results, or faster code for it",
    ("handshake_cpu_ns", verdicts.MORE): "another TLS library or version, or client certificates",
    ("handshake_cpu_ns", verdicts.LESS): "another TLS library or version",
    ("handshake_rate", verdicts.MORE): "more clients, or clients that reconnect",
    ("handshake_rate", verdicts.LESS): "fewer clients, or clients that stay connected",
}


class Marked(NamedTuple):
    """A host whose metric changed, of many hosts more than the others'."""

    row: int
    """Its place among the hosts that both times have."""
    metric: Metric
    before: float
    after: float
    change: float
    low: float
    high: float

    @property
    def direction(self) -> str:
        """More or less."""
        return verdicts.MORE if self.change > (1 if self.metric.is_log else 0) else verdicts.LESS


def has_common(host_count: int) -> bool:
    """Whether so many hosts tell what all have in common, which is then subtracted from each."""
    return host_count >= LEAST_UNITS


def group(
    question: Question,
    hosts: Sequence[str],
    marked: Sequence[Marked],
    known: tuple[Facts, Facts],
    sides: tuple[Sums, Sums],
) -> list[ChangeGroup]:
    """Hosts with new facts first, then hosts by the metric that explains their other changes.

    `sides` are the sums over the whole of each side.
    """
    clusters = {host: known[1][host]["cluster"] if host in known[1] else "" for host in hosts}
    context = _Context(question, hosts, clusters, sides)
    by_facts: dict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for host in hosts:
        before, after = known[0].get(host), known[1].get(host)
        if before and after and before is not after:
            by_facts[_changed_facts(before, after)].append(host)
    by_facts.pop((), None)
    told = {host for members in by_facts.values() for host in members}
    by_metric: dict[tuple[str, str], list[Marked]] = defaultdict(list)
    for mark in _roots(marked):
        if hosts[mark.row] not in told:
            by_metric[mark.metric.name, mark.direction].append(mark)
    groups = [_of_facts(changes, members, context) for changes, members in by_facts.items()]
    groups += [_of_metric(marks, context) for marks in by_metric.values()]
    return sorted(groups, key=lambda one: (one.kind != "facts", -one.host_count, one.sentence))


class _Context(NamedTuple):
    question: Question
    hosts: Sequence[str]
    clusters: Mapping[str, str]
    sides: tuple[Sums, Sums]


def _changed_facts(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (name, before[name], after[name]) for name in _COMPARED if before[name] != after[name]
    )


def _roots(marked: Sequence[Marked]) -> list[Marked]:
    """Without the changes that follow from another marked change of the same host."""
    by_host: dict[int, set[str]] = defaultdict(set)
    for mark in marked:
        by_host[mark.row].add(mark.metric.name)
    return [mark for mark in marked if by_host[mark.row].isdisjoint(mark.metric.follows)]


def _of_facts(
    changes: tuple[tuple[str, str, str], ...], members: list[str], context: _Context
) -> ChangeGroup:
    lines = over_members(members, context.sides)
    seen = [line for line in _counting(lines) if not BY_NAME[line.metric.name].is_load]
    text = "; ".join(f"{_FACT_NAMES.get(n, quantities.name(n))}: {a} → {b}" for n, a, b in changes)
    effects = "; ".join(change_text(line) for line in seen[:3])
    return ChangeGroup(
        "facts",
        f"{text} on {_where(members, context)}{f'. With it: {effects}' if effects else ''}.",
        f"{text} on {_count(members)}",
        "the change of version itself, and what came with it",
        "",
        len(members),
        sorted(members),
        lines,
        [],
    )


def _of_metric(marks: list[Marked], context: _Context) -> ChangeGroup:
    first = marks[0]
    members = [context.hosts[mark.row] for mark in marks]
    lines = over_members(members, context.sides)
    (own,) = (line for line in lines if line.metric.name == first.metric.name)
    is_own = not has_common(len(context.hosts)) or _is_theirs(own, first.direction)
    summary, where, cause = _told(own, first.direction, members, context, is_own=is_own)
    ordered = sorted(marks, key=lambda mark: (-_size(mark), context.hosts[mark.row]))
    return ChangeGroup(
        "metric",
        f"{change_text(own)}, on {where}.",
        summary,
        cause,
        first.metric.name,
        len(members),
        sorted(members),
        lines,
        [
            HostChange(
                *(context.hosts[mark.row], context.clusters[context.hosts[mark.row]]),
                *(mark.before, mark.after, mark.change, mark.low, mark.high),
                context.question.report(context.hosts[mark.row]),
            )
            for mark in ordered[:_LINES_MAX]
        ],
    )


def _is_theirs(own: MetricChange, direction: str) -> bool:
    """Whether they changed in that direction; else the others did, and they stayed behind."""
    change = own.change.value
    growth = 0.0 if change is None else math.log(change) if own.is_factor else change
    size = growth if direction == verdicts.MORE else -growth
    return size >= BY_NAME[own.metric.name].least_change / 2


def _told(
    own: MetricChange, direction: str, members: Sequence[str], context: _Context, *, is_own: bool
) -> tuple[str, str, str]:
    """Summary, place and cause of a change, which is their own or that of all others."""
    count, where = _count(members), _where(members, context)
    if is_own:
        cause = _CAUSES.get((own.metric.name, direction), "")
        return f"{direction} {own.metric.label} on {count}", where, cause
    return (
        f"{own.metric.label} that changed less than the others' on {count}",
        f"{where}, while it changed more on most hosts",
        "a change of most hosts that did not reach these, or matters less to them",
    )


def _count(members: Sequence[str]) -> str:
    return members[0] if len(members) == 1 else f"{len(members):,} hosts"


def _size(mark: Marked) -> float:
    return abs(math.log(mark.change)) if mark.metric.is_log else abs(mark.change)


def over_members(members: Sequence[str], sides: tuple[Sums, Sums]) -> list[MetricChange]:
    """Every metric over some hosts, before and after, marked by false-discovery rate."""
    mine = [kept(side, set(members)) for side in sides]
    return metric_changes.over_hosts(mine[0], mine[1], is_paired=True)


def _where(members: Sequence[str], context: _Context) -> str:
    """Which hosts, in words."""
    count = len(members)
    if count <= _NAMED_MAX:
        return quantities.listed(sorted(members))
    clusters: dict[str, int] = defaultdict(int)
    for host in members:
        clusters[context.clusters[host]] += 1
    sizes: dict[str, int] = defaultdict(int)
    for cluster in context.clusters.values():
        sizes[cluster] += 1
    whole = [name for name, n in clusters.items() if name and n == sizes[name]]
    if len(whole) == len(clusters):
        return f"{count:,} hosts: all of {quantities.listed([f'cluster {n}' for n in whole])}"
    if set(clusters) == {""}:
        return f"{count:,} hosts"
    return f"{count:,} hosts in {len(clusters):,} cluster{'s' if len(clusters) > 1 else ''}"


def change_text(line: MetricChange) -> str:
    """A change in words: label, before → after, factor or difference with its bounds."""
    unit = line.metric.unit
    ends = " → ".join(value_text(unit, end) for end in (line.before, line.after))
    if line.change.value is None:
        return quantities.plain(f"{line.metric.label}: {ends}")
    factor = figures.change_text(line.change.value, is_factor=line.is_factor)
    bounds = figures.change_bounds(line.change, is_factor=line.is_factor)
    return quantities.plain(f"{line.metric.label}: {ends} ({f'{factor} {bounds}'.strip()})")


def sentence(
    host_count: int,
    groups: Sequence[ChangeGroup],
    lines: Sequence[MetricChange],
    *,
    is_judged: bool,
) -> str:
    """The answer for two times; `is_judged`: hosts were, one by one."""
    named = {host for one in groups if one.kind != "network" for host in one.hosts}
    text = f"{len(named):,} of {host_count:,} hosts changed"
    text += " more than the others" if has_common(host_count) else ""
    parts = [part for one in groups if (part := one.summary)]
    if not parts and not is_judged:
        return f"No host could be judged by itself. {groups_sentence(lines)}"
    if not parts and not has_common(host_count):
        return f"No change of a single host was seen. {groups_sentence(lines)}"
    if not parts:
        return f"{text.replace('0 of', 'None of', 1)}. {groups_sentence(lines)}"
    return f"{text}: {'; '.join(parts)}."


def _counting(lines: Sequence[MetricChange]) -> list[MetricChange]:
    """The marked changes that are large enough to count."""
    return [line for line in lines if line.is_counting]


def groups_sentence(lines: Sequence[MetricChange]) -> str:
    """The metrics that are marked, over all hosts."""
    seen = _counting(lines)
    if seen:
        return "; ".join(change_text(line) for line in seen[:3]) + "."
    counts = [line.change.host_count for line in lines]
    if max(counts, default=0) < 8:
        return "No verdict: an interval over hosts needs 8 of them."
    return "No difference of all hosts together was seen."

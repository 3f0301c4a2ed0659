# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet compare`: what changed between two times, or differs between two groups of hosts.

The unit of every interval over the fleet is the host. Between two times each host is also judged by
itself: its periods before against its periods after, less what all hosts have in common at the same
time (the median over hosts, if they are 8 or more), so that a busy afternoon is not a change.
Tested is whether a change is larger than the metric's `least_change`, since smaller ones are not
named; of all hosts and metrics together the false-discovery rate decides which are. A host is named
only if its interval excludes no change, too.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import change_groups, columns, host_sums, metric_changes, networks
from tlstax.analysis.fleet.change_groups import Marked
from tlstax.analysis.fleet.columns import SECOND_NS, TIERS
from tlstax.analysis.fleet.figures import hosts_text
from tlstax.analysis.fleet.host_sums import Span, Sums
from tlstax.analysis.fleet.metrics import METRICS
from tlstax.analysis.fleet.question import Question, moment
from tlstax.analysis.model.fleet import FLEET_VERSION, FleetComparison
from tlstax.analysis.statistics import many, verdicts
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.order_statistics import LEAST_UNITS

_PERIODS_MAX: Final = 24
"""Periods of each side of a host: more say little more."""
_NOTE: Final = (
    "Of all hosts: medians over hosts with intervals over hosts, or the range of fewer than 8. "
    "Of single hosts: periods of {period} before against those after{common}; named so that at "
    "most 5 % of the named changes are noise or smaller than what counts for the metric, and only "
    "where the 95 % interval excludes no change. {load}"
)
_NOTE_COMMON: Final = (
    f", less the change that all hosts have in common, in periods in which {LEAST_UNITS} hosts or "
    "more have a value (metrics that fewer have: as they are)"
)
_NOTE_ALONE: Final = (
    f"; what all hosts have in common is not subtracted, as that takes {LEAST_UNITS} hosts"
)
_NOTE_LOAD: Final = (
    "Hosts are not named for rates and totals, which follow the load of the day; --load names them."
)
_NOTE_FEW: Final = (
    "Hosts are not judged one by one: each side needs at least 8 periods of 10 s{common}. Medians "
    "over hosts with intervals over hosts, or the range of fewer than 8."
)
_NOTE_FEW_COMMON: Final = f" in which {LEAST_UNITS} hosts or more have a value"
_NOTE_GROUPS: Final = (
    "Medians over the hosts of each group, with intervals over hosts, or the range of fewer than "
    "8; metrics are marked so that at most 5 % of the marked ones are noise."
)


def between_times(
    question: Question, before: Span, after: Span, *, with_load: bool = False
) -> FleetComparison:
    """What changed from one span to another; `with_load`: hosts are named for their load, too.

    Raises TlstaxError (USAGE).
    """
    whole = Span(
        min(before.start_wall_ns, after.start_wall_ns), max(before.end_wall_ns, after.end_wall_ns)
    )
    tier, period_ns = _periods(question, before, after)
    step_ns = TIERS[tier] * SECOND_NS
    tables = (columns.Interval, columns.Host, columns.ClientNet)
    with question.ask(whole, tier, tables) as (engine, left_out):
        known_before, known_after = host_sums.facts_of(engine, (before, after))
        hosts = host_sums.chosen({**known_before, **known_after}, question.hosts)
        found = host_sums.by_period(engine, (before, after), period_ns, step_ns)
        sums = [host_sums.kept(side, hosts) for side in found]
        nets = networks.changes(engine, before, after, hosts)
    both = sorted(set(sums[0].hosts) & set(sums[1].hosts))
    if not both:
        counts = [hosts_text(len(side.hosts)) for side in sums]
        raise TlstaxError(
            "no host was recorded on both sides",
            f"{counts[0]} from {_span_text(before)}, and {counts[1]} from {_span_text(after)}",
            "Give two spans of time in which the same hosts were recorded",
            ExitCode.USAGE,
        )
    for span, known, side in zip((before, after), (known_before, known_after), sums, strict=True):
        left_out += question.lacking(span, tier, hosts & known.keys(), side.hosts)
    sides = tuple(host_sums.kept(side, set(both)) for side in sums)
    whole_sides = sides[0].whole(), sides[1].whole()
    lines = metric_changes.over_hosts(*whole_sides, is_paired=True)
    marked, is_judged = mark(sides[0], sides[1], with_load=with_load)
    groups = change_groups.group(question, both, marked, (known_before, known_after), whole_sides)
    return FleetComparison(
        FLEET_VERSION,
        "What changed between two times",
        question.scope(whole, tier, len(both), left_out),
        _span_text(before),
        _span_text(after),
        change_groups.sentence(len(both), [*groups, *nets], lines, is_judged=is_judged),
        _note(len(both), period_ns, is_judged=is_judged, with_load=with_load),
        lines,
        [*groups, *nets],
    )


def _note(host_count: int, period_ns: int, *, is_judged: bool, with_load: bool) -> str:
    """How differences were judged."""
    has_common = change_groups.has_common(host_count)
    if not is_judged:
        return _NOTE_FEW.format(common=_NOTE_FEW_COMMON if has_common else "")
    common = _NOTE_COMMON if has_common else _NOTE_ALONE
    load = "" if with_load else _NOTE_LOAD
    return _NOTE.format(period=_duration(period_ns), common=common, load=load).rstrip()


def between_groups(
    question: Question, group: Sequence[str], against: Sequence[str]
) -> FleetComparison:
    """How two groups of hosts differ. Raises TlstaxError (USAGE)."""
    span = question.span()
    tier = question.tier_for(span)
    with question.ask(span, tier, (columns.Interval, columns.Host)) as (engine, left_out):
        known = host_sums.facts(engine, span)
        everyone = host_sums.chosen(known, question.hosts)
        chosen = [host_sums.chosen(known, side) & everyone for side in (against, group)]
        both = chosen[0] & chosen[1]
        chosen[0] -= both  # who is in both would be compared with itself
        if not chosen[0]:
            raise TlstaxError(
                "there is nothing to compare with",
                f"all hosts of {' and '.join(against)} are in the other group, too",
                "Give --against other hosts",
                ExitCode.USAGE,
            )
        sums = host_sums.over(engine, span)
    left_out += question.lacking(span, tier, set().union(*chosen), sums.hosts)
    sides = [host_sums.kept(sums, hosts) for hosts in chosen]
    lines = metric_changes.over_hosts(sides[0], sides[1], is_paired=False)
    names = [" and ".join(side) for side in (against, group)]
    names[0] += ", without the other group" if both else ""
    return FleetComparison(
        FLEET_VERSION,
        "How two groups of hosts differ",
        question.scope(span, tier, len(set().union(*chosen)), left_out),
        f"{names[0]}: {hosts_text(len(sides[0].hosts))}",
        f"{names[1]}: {hosts_text(len(sides[1].hosts))}",
        change_groups.groups_sentence(lines),
        _NOTE_GROUPS,
        lines,
        [],
    )


def _span_text(span: Span) -> str:
    return f"{moment(span.start_wall_ns)} to {moment(span.end_wall_ns)}"


def _duration(period_ns: int) -> str:
    seconds = period_ns // SECOND_NS
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def _periods(question: Question, before: Span, after: Span) -> tuple[str, int]:
    """The longest tier that gives both sides enough periods, and the length of a period."""
    shortest = min(side.end_wall_ns - side.start_wall_ns for side in (before, after))
    tier = question.tier or next(
        (
            name
            for name, seconds in sorted(TIERS.items(), key=lambda item: -item[1])
            if shortest >= LEAST_UNITS * seconds * SECOND_NS
            and all(edge % (seconds * SECOND_NS) == 0 for side in (before, after) for edge in side)
        ),
        "10s",
    )
    step = TIERS[tier] * SECOND_NS
    return tier, max(1, -(-shortest // (step * _PERIODS_MAX))) * step


def mark(before: Sums, after: Sums, *, with_load: bool) -> tuple[list[Marked], bool]:
    """The hosts and metrics that changed more than the others; whether any could be judged.

    Judged against no change at all, many small real changes would raise the bound of the
    false-discovery rate and let noise in, and leave the list themselves.
    """
    tests = []
    for metric in METRICS:
        if metric.is_load and not with_load:
            continue
        raw = before.of(metric), after.of(metric)
        sides = tuple(_apart(metric_changes.scaled(metric, one)) for one in raw)
        p = many.p_values(*sides, is_serial=True, least=metric.least_change)
        tests.append((metric, raw, sides, p))
    known = np.concatenate([p[np.isfinite(p)] for *_, p in tests])
    bound = verdicts.largest_counting(known)
    if bound is None:
        return [], bool(len(known))
    marked = []
    for metric, raw, sides, p in tests:
        rows = np.flatnonzero(p <= bound)
        found = many.median_differences(*(side[rows] for side in sides), is_serial=True)
        middles = [many.medians(side[rows]) for side in raw]
        is_seen = np.abs(found.values) >= metric.least_change
        is_seen &= (found.lows > 0) | (found.highs < 0)
        for at in np.flatnonzero(is_seen).tolist():
            marked.append(
                Marked(
                    int(rows[at]),
                    metric,
                    *(float(side[at]) for side in middles),
                    *(metric_changes.back(metric, float(end[at])) for end in found),
                )
            )
    return marked, True


def _apart(values: Floats) -> Floats:
    """Each host's values less the median of all hosts in the same period, if they are many.

    NaN in periods in which few of them have a value: what is subtracted would be their own change.
    A metric that few have in each period is judged as it is.
    """
    is_known = np.isfinite(values).sum(axis=0) >= LEAST_UNITS
    if not is_known.any():
        return values
    return values - np.where(is_known, many.medians(values.T), np.nan)

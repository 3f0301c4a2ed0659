# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet top`, `compare`, `explain` and `flamegraph`."""

import argparse
import sys
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.classify import flames
from tlstax.analysis.fleet import changes, metrics, peers, profiles, ranking
from tlstax.analysis.fleet.host_sums import FACTS, Span
from tlstax.analysis.fleet.question import (
    parse_duration,
    parse_span,
    parse_time,
    require_sides,
)
from tlstax.analysis.fleet.rollup.intervals import WALL
from tlstax.analysis.report.commands.fleet_options import (
    add_command,
    add_outputs,
    add_question,
    add_reports,
    answer,
    question_of,
)
from tlstax.analysis.report.html import fleet as page
from tlstax.analysis.report.html import svg
from tlstax.analysis.report.output import STANDARD_OUTPUT, write
from tlstax.analysis.report.terminal import fleet as terminal
from tlstax.collectors.capture.vocabulary import PHASES

_FINDING: Final = "finding:"
_KINDS: Final = {"on-cpu": "on_cpu", "off-cpu": "off_cpu"}
_SPAN: Final = "12h"


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the questions."""
    top = add_command(commands, "top", "rank hosts, and count their findings", _top)
    add_question(top)
    top.add_argument(
        "--by",
        default="tls_cpus",
        metavar="METRIC",
        help=f"{', '.join(metrics.BY_NAME)}, or finding:ID (tls_cpus)",
    )
    top.add_argument("--most", type=int, default=20, metavar="N", help="hosts to list (20)")
    top.add_argument("--group-by", choices=FACTS, help="quantiles of wall times by this fact")
    top.add_argument("--phase", choices=(WALL, *PHASES), default=WALL, help=f"of what ({WALL})")
    add_reports(top)
    add_outputs(top, has_page=True)
    compare = add_command(commands, "compare", "what changed, or how groups differ", _compare)
    add_question(compare)
    compare.add_argument("--at", metavar="TIME", help="before and after this time")
    compare.add_argument("--span", metavar="TIME", default=_SPAN, help="length of each side (12h)")
    compare.add_argument("--before", metavar="FROM..TO", help="or the first side")
    compare.add_argument("--after", metavar="FROM..TO", help="and the second side")
    compare.add_argument(
        "--group", action="append", default=[], metavar="NAME=PATTERN", help="or a group of hosts"
    )
    compare.add_argument(
        "--against", action="append", default=[], metavar="NAME=PATTERN", help="and another group"
    )
    compare.add_argument("--load", action="store_true", help="name hosts for rates and totals, too")
    add_reports(compare)
    add_outputs(compare, has_page=True)
    explain = add_command(commands, "explain", "one host among its peers", _explain)
    explain.add_argument("host", metavar="HOST")
    add_question(explain)
    add_reports(explain)
    add_outputs(explain, has_page=False)
    graph = add_command(commands, "flamegraph", "draw the stacks of many hosts as SVG", _flamegraph)
    add_question(graph)
    graph.add_argument("-o", "--output", metavar="FILE", required=True, help="- prints it")
    graph.add_argument("--kind", choices=_KINDS, default="on-cpu")
    graph.add_argument(
        "--phase", choices=PHASES, action="append", default=[], help="only this phase; repeatable"
    )
    graph.add_argument(
        "--against", action="append", default=[], metavar="NAME=PATTERN",
        help="draw the difference from these hosts",
    )  # fmt: skip
    graph.add_argument("--before", metavar="FROM..TO", help="draw the difference from this time")


def _top(options: argparse.Namespace) -> int:
    question = question_of(options)
    if options.most < 1:
        raise TlstaxError(
            f"cannot list {options.most} hosts",
            "--most is less than 1",
            "Give a number from 1 on",
            ExitCode.USAGE,
        )
    if options.by.startswith(_FINDING):
        name = options.by.removeprefix(_FINDING)
        found = ranking.by_finding(question, name, options.most)
    else:
        metric = metrics.of_name(options.by)
        found = ranking.top(question, metric, options.most, options.group_by or "", options.phase)
    return answer(options, found, terminal.print_top, page.top)


def _compare(options: argparse.Namespace) -> int:
    question = question_of(options)
    by_span = (options.before is not None, options.after is not None)
    by_group = (bool(options.group), bool(options.against))
    given = [options.at is not None, any(by_span), any(by_group)]
    if sum(given) != 1 or by_span[0] != by_span[1] or by_group[0] != by_group[1]:
        raise TlstaxError(
            "it is not clear what to compare",
            "there are three ways: --at, --before with --after, --group with --against",
            "Give exactly one of them",
            ExitCode.USAGE,
        )
    if any(by_group):
        found = changes.between_groups(question, options.group, options.against)
    else:
        if options.at is not None:
            at, length = parse_time(options.at), parse_duration(options.span)
            sides = Span(at - length, at), Span(at, at + length)
        else:
            sides = parse_span(options.before), parse_span(options.after)
        require_sides(*sides)
        found = changes.between_times(question, *sides, with_load=options.load)
    return answer(options, found, terminal.print_comparison, page.comparison)


def _explain(options: argparse.Namespace) -> int:
    found = peers.explain(question_of(options), options.host)
    return answer(options, found, terminal.print_explanation)


def _flamegraph(options: argparse.Namespace) -> int:
    question = question_of(options)
    span = question.span()
    kind, hosts = _KINDS[options.kind], tuple(options.where)
    after, left_out = profiles.profile(question, kind, hosts, span)
    sides = [after]
    if options.against or options.before:
        earlier = parse_span(options.before) if options.before else span
        before, more = profiles.profile(question, kind, tuple(options.against) or hosts, earlier)
        left_out += more
        sides = [before, after]
    sides = [_only(side, options.phase) for side in sides]
    for text in dict.fromkeys(left_out):
        print(f"tlstax: {text}", file=sys.stderr)
    notes = [
        f"{quantities.time(side.total_ns)} per second of a host in hours that have stacks, by the "
        f"ledger, split by {quantities.count(side.count)} samples or waits; an hour whose raw "
        "windows ended early counts by the share of its served time that its stacks have"
        for side in sides
    ]
    what = options.kind.replace("-", " ")
    if len(sides) == 1:
        picture = svg.render(flames.single(after), f"{after.label}: {what}", notes)
    else:
        before, after = sides
        title = f"{before.label} → {after.label}: {what}"
        picture = svg.render(flames.difference(before, after), title, notes, compared=True)
    write(options.output, picture)
    if options.output != STANDARD_OUTPUT:
        print(f"{options.output}: {sides[-1].label}, {what}", file=sys.stderr)
    return int(ExitCode.OK)


def _only(profile: flames.Profile, phases: list[str]) -> flames.Profile:
    return flames.Profile(profile.label, flames.choose(profile.folded, phases), profile.count)

# SPDX-License-Identifier: GPL-2.0-only
"""Print answers about many hosts: the sentence first, then tables."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from tlstax.analysis import quantities
from tlstax.analysis.fleet import figures
from tlstax.analysis.model.fleet import Figure
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]
_HOST_WIDTH: Final = 32
_LINES: Final = 10
"""Hosts of a group that changed."""


def print_top(document: Json) -> None:
    """A ranking."""
    screen = console.screen()
    _head(screen, document)
    unit = document["metric"]["unit"]
    lines = document["hosts"]
    is_estimate = any(line["low"] is not None for line in lines)
    names = ["host", "value", *(["95 %"] if is_estimate else []), "cluster", "TLS library"]
    table = console.table(document["metric"]["label"], *names)
    for line in lines:
        mark = " !" if line["is_outlier"] else ""
        ends = [figures.value_text(unit, line[end]) for end in ("low", "high")]
        bounds = f"[{', '.join(ends)}]" if line["low"] is not None else ""
        table.add_row(
            _short(line["host"]) + mark,
            figures.value_text(unit, line["value"]),
            *([bounds] if is_estimate else []),
            _short(line["cluster"]),
            _short(line["tls_library"]),
        )
    fleet = _figure(document["fleet"])
    middle = (
        f"median of {figures.hosts_text(fleet.host_count)}: {figures.value_text(unit, fleet.value)}"
    )
    note = f"{middle} {figures.value_bounds(unit, fleet)}".strip()
    if document["total"] is not None:
        note += f"; together {figures.value_text(unit, document['total'])}"
    outliers = "! far above the others" if any(line["is_outlier"] for line in lines) else ""
    estimated = "95 %: record crypto is estimated by CPU samples" if is_estimate else ""
    screen.print(console.titled(table, screen.width, note, outliers, estimated))
    if document["findings"]:
        table = console.table("findings", "", "hosts", "median share", "most")
        for line in document["findings"]:
            table.add_row(
                texts.name(line["finding"]),
                quantities.count(line["host_count"]),
                quantities.share(line["share"]["value"]),
                _short(", ".join(line["hosts"][:2])),
            )
        screen.print(console.titled(table, screen.width))
    if document["latencies"]:
        _print_latencies(screen, document["latencies"])


def print_comparison(document: Json) -> None:
    """What changed."""
    screen = console.screen()
    _head(screen, document)
    for name in ("before", "after"):
        screen.print(console.sentence(document[name], screen.width, mark=f"{name:7}", style="dim"))
    for group in document["groups"]:
        screen.print()
        screen.print(console.sentence(group["sentence"], screen.width, style="bold"))
        if group["cause"]:
            screen.print(
                console.sentence(f"May come from: {group['cause']}.", screen.width, style="dim")
            )
        if group["lines"]:
            _print_hosts(screen, group)
    table = console.table("all hosts", "", "before", "after", "change", "bounds", "verdict")
    for line in document["metrics"]:
        unit, change = line["metric"]["unit"], _figure(line["change"])
        table.add_row(
            texts.clean(line["metric"]["label"]),
            figures.value_text(unit, line["before"]),
            figures.value_text(unit, line["after"]),
            figures.change_text(change.value, is_factor=line["is_factor"]),
            figures.change_bounds(change, is_factor=line["is_factor"]),
            line["verdict"],
        )
    screen.print(console.titled(table, screen.width, document["note"]))


def _print_hosts(screen: Console, group: Json) -> None:
    first = next(line for line in group["changes"] if line["metric"]["name"] == group["metric"])
    unit, is_factor = first["metric"]["unit"], first["is_factor"]
    table = console.table(first["metric"]["label"], "host", "before", "after", "change", "95 %")
    for line in group["lines"][:_LINES]:
        ends = (figures.change_text(line[end], is_factor=is_factor) for end in ("low", "high"))
        table.add_row(
            _short(line["host"]),
            figures.value_text(unit, line["before"]),
            figures.value_text(unit, line["after"]),
            figures.change_text(line["change"], is_factor=is_factor),
            f"[{', '.join(ends)}]",
        )
    left = group["host_count"] - len(group["lines"][:_LINES])
    screen.print(console.titled(table, screen.width, f"and {left:,} more hosts" if left else ""))


def print_explanation(document: Json) -> None:
    """One host among its peers."""
    screen = console.screen()
    _head(screen, document)
    if document["report"]:
        screen.print(console.sentence(document["report"], screen.width, style="dim"))
    table = console.table("among its peers", "", "value", "median", "bounds", "rank")
    for line in document["metrics"]:
        unit, peers = line["metric"]["unit"], _figure(line["peers"])
        table.add_row(
            texts.clean(line["metric"]["label"]) + (" !" if line["is_outlier"] else ""),
            figures.value_text(unit, line["value"]),
            figures.value_text(unit, peers.value),
            figures.value_bounds(unit, peers),
            quantities.count(line["rank"]) if line["rank"] else quantities.ABSENT,
        )
    screen.print(console.titled(table, screen.width, f"peers: {document['peers']}"))
    for finding in document["findings"]:
        screen.print(console.sentence(finding["sentence"], screen.width, mark="- "))
    table = console.table("time for each second", "phase", "on CPU", "waiting")
    for line in document["phases"]:
        table.add_row(
            texts.name(line["phase"]),
            quantities.time(line["on_cpu_ns"]),
            quantities.time(line["waiting_ns"]),
        )
    screen.print(console.titled(table, screen.width))
    if document["handshakes"]:
        table = console.table("handshakes", "", "count", "mean")
        for line in document["handshakes"]:
            kind = [line[name] for name in ("tls_version", "cipher", "group_name", "resumption")]
            table.add_row(
                texts.clean(", ".join([line["outcome"], *kind])),
                quantities.count(line["count"]),
                quantities.time(line["mean_ns"]),
            )
        screen.print(console.titled(table, screen.width))
    if document["networks"]:
        _print_networks(screen, document["networks"])
    if document["latencies"]:
        _print_latencies(screen, document["latencies"], column="phase")
    for version in document["versions"]:
        facts = ", ".join(f"{texts.name(n)} {v}" for n, v in version["facts"].items() if v)
        screen.print(
            console.sentence(facts, screen.width, mark=f"{version['start']}  ", style="dim")
        )


def _print_networks(screen: Console, lines: Sequence[Json]) -> None:
    table = console.table("client networks", "", "handshakes", "full", "resumed", "failed")
    for line in lines:
        names = ("count", "full_count", "resumed_count", "failed_count")
        table.add_row(
            texts.clean(line["network"]) + (" !" if line["never_resumes"] else ""),
            *(quantities.count(line[name]) for name in names),
        )
    is_any = any(line["never_resumes"] for line in lines)
    screen.print(console.titled(table, screen.width, "! never resumes" if is_any else ""))


def print_savings(document: Json) -> None:
    """The forecast of a fleet."""
    screen = console.screen()
    _head(screen, document)
    if document["hosts"]:
        _print_savers(screen, document)
    if document["left"]:
        table = console.table("not predicted", "reason", "hosts", "CPUs", "such as")
        for line in document["left"]:
            table.add_row(
                texts.clean(line["reason"]),
                quantities.count(line["host_count"]),
                quantities.three_digits(line["cpus"]),
                _short(", ".join(line["hosts"][:2])),
            )
        screen.print(console.titled(table, screen.width))
    for text in document["assumptions"]:
        screen.print(console.sentence(text, screen.width, mark="- ", style="dim"))


def _print_savers(screen: Console, document: Json) -> None:
    table = console.table("saved CPUs", "host", "now", "saved", "bounds", "key", "TLS library")
    for line in document["hosts"]:
        table.add_row(
            _short(line["host"]),
            quantities.three_digits(line["now"]),
            quantities.three_digits(line["saved"]["value"]),
            _bounds(line["saved"]),
            line["key"],
            _short(line["tls_library"]),
        )
    each = _figure(document["per_host"])
    middle = (
        f"median of {figures.hosts_text(each.host_count)}: "
        f"{quantities.three_digits(each.value)} {figures.value_bounds('count', each)}".strip()
    )
    over = document["over_hosts"]
    resampled = f"the sum over as many such hosts: {_bounds(over)}" if over else ""
    has_it = document["unchanged_count"]
    same = f"{figures.hosts_text(has_it)} with it already" if has_it else ""
    screen.print(
        console.titled(
            table, screen.width, "; ".join(one for one in (middle, resampled, same) if one)
        )
    )


def _bounds(saving: Json) -> str:
    low, high = (quantities.three_digits(saving[end]) for end in ("low", "high"))
    return f"[{low}, {high}]"


def _print_latencies(screen: Console, lines: Sequence[Json], column: str = "group") -> None:
    table = console.table("wall times", "", "hosts", "count", "p50", "p95", "p99", "p99 bounds")
    for line in lines:
        found = [_figure(one["figure"]) for one in line["quantiles"]]
        table.add_row(
            texts.name(line[column]),
            quantities.count(line["host_count"]),
            quantities.three_digits(line["count"]),
            *(figures.value_text("ns", one.value) for one in found),
            figures.value_bounds("ns", found[-1]),
        )
    screen.print(console.titled(table, screen.width))


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The answer to SQL, whole."""
    lines = [[texts.clean(text) for text in row] for row in (names, *rows)]
    widths = [max(len(row[at]) for row in lines) for at in range(len(names))]
    for row in lines:
        pairs = zip(row, widths, strict=True)
        print("  ".join(text.ljust(width) for text, width in pairs).rstrip())


def _head(screen: Console, document: Json) -> None:
    scope = document["scope"]
    screen.print(console.sentence(document["sentence"], screen.width, style="bold"))
    where = f"{scope['start']} to {scope['end']}, {figures.hosts_text(scope['host_count'])}, tier "
    where += f"{scope['tier']}, {scope['engine']}"
    screen.print(console.sentence(where, screen.width, style="dim"))


def _figure(plain: Json) -> Figure:
    return Figure(plain["value"], plain["low"], plain["high"], plain["host_count"])


def _short(text: str) -> str:
    cleaned = texts.clean(text)
    return cleaned if len(cleaned) <= _HOST_WIDTH else f"{cleaned[: _HOST_WIDTH - 1]}…"

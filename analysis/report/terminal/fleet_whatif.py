# SPDX-License-Identifier: GPL-2.0-only
"""Print what a change of every host would save: the sum, the hosts, and who is left out."""

from collections.abc import Mapping
from typing import Any

from tlstax.analysis import quantities
from tlstax.analysis.fleet import figures
from tlstax.analysis.report.terminal import console
from tlstax.analysis.report.terminal.fleet import figure_of, head, short

Json = Mapping[str, Any]


def print_savings(document: Json) -> None:
    """The forecast of a fleet."""
    screen = console.screen()
    head(screen, document)
    if document["hosts"]:
        _print_hosts(screen, document)
    if document["left"]:
        table = console.table("not predicted", "reason", "hosts", "CPUs", "such as")
        for line in document["left"]:
            table.add_row(
                line["reason"],
                quantities.count(line["host_count"]),
                quantities.three_digits(line["cpus"]),
                short(", ".join(line["hosts"][:2])),
            )
        screen.print(console.titled(table, screen.width))
    for text in document["assumptions"]:
        screen.print(console.sentence(text, screen.width, mark="- ", style="dim"))


def _print_hosts(screen: Any, document: Json) -> None:
    table = console.table("saved CPUs", "host", "now", "saved", "bounds", "key", "TLS library")
    for line in document["hosts"]:
        table.add_row(
            short(line["host"]),
            quantities.three_digits(line["now"]),
            quantities.three_digits(line["saved"]["value"]),
            _bounds(line["saved"]),
            line["key"],
            short(line["tls_library"]),
        )
    each = figure_of(document["per_host"])
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

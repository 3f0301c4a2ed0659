# SPDX-License-Identifier: GPL-2.0-only
"""Print a comparison of TLS libraries: two tables, and what each library is and lacks."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console as parts
from tlstax.collectors.capture.safe_console import SafeConsole

Json = Mapping[str, Any]

FIXED_WIDTH: Final = 50
CATEGORY_WIDTH: Final = 14


def print_libraries(document: Json, page: str | None = None) -> None:
    """Print the whole comparison."""
    console = SafeConsole(sys.stdout)
    width = console.width
    console.print(parts.sentence(document["title"], width, style="bold"))
    console.print(parts.sentence(f"{document['host']}; key {document['key']}.", width))
    for cost, title in (
        ("handshake", "CPU time of the server that TLS adds to a connect, in one handshake"),
        ("record", "CPU time of the server that TLS adds to a KB of result"),
    ):
        fitting = max(2, (width - FIXED_WIDTH) // CATEGORY_WIDTH)
        table = cost_table(document["servers"], cost, title, fitting)
        console.print(parts.titled(table, width, document["note"]))
    for server in document["servers"]:
        _print_build(console, server, width)
    for name, why in document["left_out"].items():
        console.print(parts.sentence(f"{name}: omitted. {why}", width, style="yellow"))
    if page:
        console.print(parts.sentence(f"HTML: {page}", width))


def cost_table(servers: Sequence[Json], cost: str, title: str, most: int) -> Table:
    """One row for each server, one column for each category that matters."""
    names = texts.largest_categories(servers, cost, most)
    bounds, write = texts.bounds_column(server[cost]["total"] for server in servers if server[cost])
    table = parts.table(title, "server", "TLS adds", bounds, *map(texts.name, names), "others")
    for column in table.columns[3:]:
        column.no_wrap = False  # names of categories have several words
    for server in servers:
        if server[cost] is None:
            table.add_row(texts.clean(server["name"]), quantities.ABSENT)
            continue
        values = {
            entry["category"]: entry["cost"]["value_ns"] for entry in server[cost]["categories"]
        }
        others = [value for name, value in values.items() if name not in names]
        table.add_row(
            texts.clean(server["name"]),
            quantities.time(server[cost]["total"]["value_ns"]),
            write(server[cost]["total"]),
            *(quantities.time(values.get(name)) for name in names),
            quantities.time(sum(others)),
        )
    return table


def build_sentence(server: Json) -> str:
    """What a server's TLS library is, and what it has not."""
    build = server["build"]
    lacks = "; ".join(build["lacks"]) or "nothing that was looked for is missing"
    return (
        f"{server['name']} ({server['server']}): {build['library']}, {build['linkage']}; "
        f"{build['agreed']}; {lacks}."
    )


def _print_build(console: Console, server: Json, width: int) -> None:
    console.print()
    console.print(parts.sentence(build_sentence(server), width))
    if server["private_key_ns"] is not None:
        time = quantities.time(server["private_key_ns"])
        console.print(
            parts.sentence(f"private-key operation: {time} of CPU, exact", width, mark="  ")
        )
    for title, key in (("handshake", "hot_handshake"), ("records", "hot_record")):
        text = texts.hot_sentence(f"hot in {title}", server[key])
        console.print(parts.sentence(text, width, mark="  "))

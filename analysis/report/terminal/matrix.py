# SPDX-License-Identifier: GPL-2.0-only
"""Print a matrix: its cells, what each differs by from its baseline, and what was published."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tlstax.analysis import quantities
from tlstax.analysis.report.terminal import console as parts

Json = Mapping[str, Any]

FACTS: Final = ("recipe", "scale", "seed", "rounds", "host", "kernel")
WIDE: Final = 130
STEPS_MAX: Final = 8


def print_matrix(document: Json, page: str | None = None) -> None:
    """Print the whole."""
    console = Console()
    width = console.width
    console.print(parts.sentence(document["title"], width, style="bold"))
    facts = document["facts"]
    told = ", ".join(f"{name} {facts[name]}" for name in FACTS if name in facts)
    console.print(parts.sentence(told, width))
    console.print(parts.titled(cell_table(document, width), width, document["note"]))
    for pair in document["pairs"]:
        sides = pair["both_sides"]
        more = f" {sides['sentence']}" if sides else ""
        text = f"{pair['name']}: {pair['sentence']}{more}"
        console.print(parts.sentence(text, width, mark="  "))
    for source in dict.fromkeys(entry["source"] for entry in document["published"]):
        mine = [
            entry
            for entry in document["published"]
            if entry["source"] == source and entry["published_ratio"] is not None
        ]
        if mine:
            console.print(parts.titled(published_table(source, mine), width))
    for entry in document["failures"]:
        runs = "run" if entry["run_count"] == 1 else "runs"
        text = f"{entry['state']}: {entry['label']}, {entry['run_count']} {runs}. {entry['reason']}"
        console.print(parts.sentence(text, width, style="yellow"))
    if page:
        console.print(parts.sentence(f"HTML: {page}", width))


def cell_table(document: Json, width: int) -> Table:
    """One row for each cell."""
    columns = ["operations/s", "sd", "95 % within", "of baseline"]
    wide = width >= WIDE
    if wide:
        columns += ["95 %", "server CPU", "client CPU", "on the way", "closure"]
    table = parts.table("Cells, over their rounds", "cell", *columns)
    table.columns[0].no_wrap = False
    table.columns[0].min_width = 26
    pairs = {pair["cell_id"]: pair for pair in document["pairs"]}
    for cell in document["cells"]:
        pair = pairs.get(cell["cell_id"])
        row = [
            parts.clean(cell["label"]),
            rate(cell["operations_per_s"]["mean"]),
            rate(cell["operations_per_s"]["sd"]),
            quantities.time(cell["p95_ns"]),
            ratio(pair["throughput"]["value"]) if pair else "",
        ]
        if wide:
            row += [
                ratio_interval(pair["throughput"]) if pair else "",
                quantities.time(cell["server_cpu_ns"]),
                quantities.time(cell["client_cpu_ns"]),
                on_the_way(cell),
                quantities.share(cell["closure"]),
            ]
        table.add_row(*row)
    return table


def published_table(source: str, published: list[Json]) -> Table:
    """One source's figures and those measured, side by side."""
    table = parts.table(
        f"Of the baseline, there and here. {source}",
        *("cell here", "quantity", "published", "measured", "there", "here"),
    )
    table.columns[0].no_wrap = False
    for entry in published:
        setup = f" ({entry['setup']})" if entry["setup"] else ""
        table.add_row(
            parts.clean(f"{entry['cell']}{setup}"),
            parts.name(entry["quantity"]),
            figure(entry["published"], entry["quantity"]),
            figure(entry["measured"], entry["quantity"]),
            ratio(entry["published_ratio"]),
            ratio(entry["measured_ratio"]),
        )
    return table


def rate(value: float | None) -> str:
    """Operations per second: three digits or all of the whole number."""
    if value is None:
        return quantities.ABSENT
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def ratio(value: float | None) -> str:
    """How many times as much, with two significant digits where it is little."""
    if value is None or value >= 0.0995 or value <= 0:
        return quantities.ratio(value)
    return f"{value:.2g}{quantities.NO_BREAK}×"


def figure(value: float | None, quantity: str) -> str:
    """A figure in the unit of its quantity."""
    return quantities.time(value) if quantity.endswith("_ns") else rate(value)


def ratio_interval(found: Json) -> str:
    """The interval of a ratio, or nothing."""
    if found["low"] is None:
        return ""
    return f"[{ratio(found['low'])}, {ratio(found['high'])}]"


def on_the_way(cell: Json) -> str:
    """CPU time of tunnels and proxies per operation."""
    return ", ".join(
        f"{parts.clean(process['name'])} {quantities.time(process['cpu_ns'])}"
        for process in cell["processes"]
    )

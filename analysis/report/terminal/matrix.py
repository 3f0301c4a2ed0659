# SPDX-License-Identifier: GPL-2.0-only
"""Print a matrix: its cells, what each differs by from its baseline, and what was published."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console as parts
from tlstax.collectors.capture.safe_console import SafeConsole

Json = Mapping[str, Any]

FACTS: Final = ("recipe", "scale", "seed", "starts", "rounds", "host", "kernel")
WIDE: Final = 160


def print_matrix(document: Json, page: str | None = None) -> None:
    """Print the whole matrix."""
    console = SafeConsole(sys.stdout)
    width = console.width
    console.print(parts.sentence(document["title"], width, style="bold"))
    facts = document["facts"]
    listed = ", ".join(f"{name} {facts[name]}" for name in FACTS if name in facts)
    console.print(parts.sentence(listed, width))
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
    cells = document["cells"]
    bounds, write = texts.bounds_column(
        (cell["operations_per_s"] for cell in cells), texts.number_interval
    )
    columns = ["operations/s", bounds, "p95", "ratio"]
    ratio_bounds, write_ratio = texts.bounds_column(
        (pair["throughput"] for pair in document["pairs"]), texts.ratio_interval
    )
    wide = width >= WIDE
    if wide:
        columns += [ratio_bounds, "server CPU", "client CPU", "intermediaries", "closure"]
    table = parts.table("Cells, over their rounds; ratio to the baseline", "cell", *columns)
    table.columns[0].no_wrap = False
    table.columns[0].min_width = 26
    if wide:
        table.columns[-2].no_wrap = False  # several processes
    pairs = {pair["cell_id"]: pair for pair in document["pairs"]}
    for cell in cells:
        pair = pairs.get(cell["cell_id"])
        row = [
            texts.clean(cell["label"]),
            quantities.three_digits(cell["operations_per_s"]["value"]),
            write(cell["operations_per_s"]),
            quantities.time(cell["p95"]["value_ns"]),
            quantities.ratio(pair["throughput"]["value"]) if pair else "",
        ]
        if wide:
            row += [
                write_ratio(pair["throughput"]) if pair else "",
                quantities.time(cell["server_cpu_ns"]),
                quantities.time(cell["client_cpu_ns"]),
                texts.intermediaries(cell),
                quantities.share(cell["closure"]),
            ]
        table.add_row(*row)
    return table


def published_table(source: str, published: list[Json]) -> Table:
    """One source's figures and those measured, side by side."""
    table = parts.table(
        f"Ratio to the baseline, published and measured. {source}",
        *("cell", "quantity", "published", "measured", "published ratio", "measured ratio"),
    )
    table.columns[0].no_wrap = False
    for entry in published:
        setup = f" ({entry['setup']})" if entry["setup"] else ""
        table.add_row(
            texts.clean(f"{entry['cell']}{setup}"),
            texts.name(entry["quantity"]),
            texts.figure(entry["published"], entry["quantity"]),
            texts.figure(entry["measured"], entry["quantity"]),
            quantities.ratio(entry["published_ratio"]),
            quantities.ratio(entry["measured_ratio"]),
        )
    return table

# SPDX-License-Identifier: GPL-2.0-only
"""What the CPU did, phase by phase, on the terminal."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import RenderableType

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console, ledger

Json = Mapping[str, Any]

SMALLEST_SHARE: Final = 0.01
"""Phases and categories below this share of the CPU time are in the JSON and the HTML only."""
MOST_CATEGORIES: Final = 6
"""Categories of a phase, largest first; the others likewise."""


def is_of_interest(composition: Json) -> bool:
    """The TLS arms and whole recordings; plaintext arms are in the HTML."""
    return bool(composition["phases"]) and "plaintext" not in composition["name"].split("/")


def render(item: Json, width: int) -> RenderableType:
    """What the CPU did, phase by phase, largest categories first."""
    table = console.table(f"CPU: {item['label']}", "phase", "CPU time", "samples", "made of")
    table.columns[-1].justify = "left"
    made_of_columns = width - 42
    total_ns = sum(phase["on_cpu_ns"] for phase in item["phases"])
    for phase in item["phases"]:
        if phase["on_cpu_ns"] < SMALLEST_SHARE * total_ns:
            continue
        per_operation = phase["per_operation_ns"]
        table.add_row(
            texts.name(phase["phase"]),
            f"{ledger.estimate_mark(item)}"
            f"{quantities.time(phase['on_cpu_ns'] if per_operation is None else per_operation)}",
            "exact" if phase["exact"] else quantities.count(phase["sample_count"]),
            console.sentence(_made_of(phase), made_of_columns),
        )
    mark = ledger.estimate_mark(item)
    return console.titled(table, width, *([f"{mark}{item['estimate']}"] if mark else []))


def _made_of(phase: Json) -> str:
    """The largest categories of a phase; too few samples make no shares."""
    largest = [
        share for share in phase["shares"][:MOST_CATEGORIES] if share["share"] >= SMALLEST_SHARE
    ]
    if not largest:
        return "no samples"
    if phase["enough"]:
        return ", ".join(
            f"{texts.name(share['category'])} {quantities.share(share['share'])}"
            for share in largest
        )
    counts = ", ".join(
        f"{texts.name(share['category'])} {quantities.count(share['sample_count'])}"
        for share in largest
    )
    return f"too few samples to split: {counts}"

# SPDX-License-Identifier: GPL-2.0-only
"""What the CPU did, phase by phase, on the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console, ledger

Json = Mapping[str, Any]

SMALLEST_SHARE: Final = 0.01
"""Phases and categories below this share of the CPU time are in the JSON and the HTML only."""
ASKED: Final = ("memory", "lock_spin", "provider_fetch")
"""Work for others: without its callers it says little. The HTML has those of all categories."""
LEAST_ASKED: Final = 0.05
"""Share of a phase from which on these are followed by their callers."""
MOST_CALLERS: Final = 4
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
    notes = [f"{mark}{item['estimate']}"] if mark else []
    return console.titled(table, width, *notes, *_callers(item["phases"]))


def _callers(phases: Sequence[Json]) -> Iterator[str]:
    """The callers of the largest categories, one sentence each."""
    found = [
        (share["time_ns"], phase, share)
        for phase in phases
        if phase["enough"]
        for share in phase["shares"]
        if share["share"] >= LEAST_ASKED and share["category"] in ASKED
    ]
    for _, phase, share in sorted(found, key=lambda one: -one[0]):
        lines = texts.callers(phase, share["category"])
        named = [one for one in lines if one[1]["function"] != texts.SEVERAL][:MOST_CALLERS]
        if named:
            whose = ", ".join(f"{who} {quantities.share(one['share'])}" for who, one in named)
            yield (
                f"{texts.name(phase['phase'])}, {texts.name(share['category'])}"
                f" {quantities.share(share['share'])}: called by {whose}"
            )


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

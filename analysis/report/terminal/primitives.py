# SPDX-License-Identifier: GPL-2.0-only
"""Print what was counted of the TLS library's own functions."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]

SIZES_NEED: Final = 98
"""Columns below which the table leaves out the mean size of a call."""
SMALLEST_SHARE: Final = 0.01
"""Sizes with less than this share of a function's calls are in the JSON and the HTML only."""


def render(item: Json, width: int) -> RenderableType:
    """The library's own functions; below each, the sizes that occur often."""
    table = console.table(
        f"functions of the TLS library: {item['label']}",
        "function",
        "calls",
        "a command",
        "a handshake",
        "bytes a call",
        "time a call",
        "a byte",
    )
    for line in item["lines"]:
        _add_primitive(table, line, texts.clean(line["name"]), line)
        shown = [part for part in line["sizes"] if _is_frequent(part, line)]
        for part in shown if len(line["sizes"]) > 1 else ():
            sizes = quantities.size_range(part["low_bytes"], part["high_bytes"])
            _add_primitive(table, part, f"  {sizes}", {})
    if width < SIZES_NEED:
        del table.columns[4]
    note = (
        f"per {quantities.count(item['command_count'])} commands and "
        f"{quantities.count(item['handshake_count'])} handshakes; counts are exact"
    )
    reasons = dict.fromkeys(
        f"{line['timing']['verdict']}: {line['timing']['reason']}"
        for line in item["lines"]
        if line["timing"]["reason"]
    )
    return Group(
        Text(),
        console.sentence(item["sentence"], width, mark="! ", style="yellow"),
        console.titled(table, width, note, *reasons),
    )


def _is_frequent(part: Json, line: Json) -> bool:
    return bool(part["call_count"] >= SMALLEST_SHARE * line["call_count"])


def _add_primitive(table: Table, part: Json, label: str, rates: Json) -> None:
    timing = part["timing"]
    is_measured = timing["per_call_ns"] is not None
    time = quantities.time(timing["per_call_ns"]) if is_measured else timing["verdict"]
    table.add_row(
        Text(label, style="" if rates else "dim"),
        quantities.count(part["call_count"]),
        quantities.count(rates["per_command"]) if rates else "",
        quantities.count(rates["per_handshake"]) if rates else "",
        quantities.size(part["mean_bytes"]),
        Text(time, style="" if is_measured else "dim"),
        quantities.per_byte(timing["per_byte_ns"]) if is_measured else "",
    )

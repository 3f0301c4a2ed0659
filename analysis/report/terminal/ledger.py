# SPDX-License-Identifier: GPL-2.0-only
"""The ledger on the terminal: time by phase and state."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]

ESTIMATE_MARK: Final = "≈ "
"""In front of every number that was measured in part of the time and scaled to the whole."""


def estimate_mark(item: Json) -> str:
    """The mark in front of a scaled number."""
    return ESTIMATE_MARK if item["estimate"] else ""


def render(item: Json, width: int) -> RenderableType:
    """The ledger of one arm; a comparison shows it as a waterfall instead."""
    mark = estimate_mark(item)
    bounds = [texts.bounds_title(item["segments"])] if mark else []
    columns = ["phase", "state", "time", *bounds, "share", ""]
    table = console.table(item["label"], *columns)
    table.columns[1].justify = table.columns[-1].justify = "left"
    for segment in item["segments"]:
        table.add_row(
            texts.name(segment["phase"]),
            texts.name(segment["state"]),
            f"{mark}{quantities.time(segment['time_ns'])}",
            *([texts.segment_interval(segment)] if mark else []),
            quantities.share(segment["share"]),
            Text(console.bar(0, segment["share"], 1), style="cyan"),
        )
    return console.titled(
        table,
        width,
        *([f"{mark}{item['estimate']}"] if mark else []),
        f"served {mark}{quantities.time(item['total_ns'])}; excluding idle "
        f"{mark}{quantities.time(item['idle_ns'])}, background threads "
        f"{mark}{quantities.time(item['background_ns'])}, unclassified "
        f"{mark}{quantities.time(item['unknown_ns'])}",
    )

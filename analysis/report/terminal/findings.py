# SPDX-License-Identifier: GPL-2.0-only
"""Findings on the terminal: each with its size, its evidence, and what helps."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]


def render(document: Json, width: int) -> Iterable[RenderableType]:
    """All findings; where there is none, that no cause is certain."""
    yield Text()
    yield Text("findings", style="bold")
    if not document["findings"]:
        yield console.sentence(
            f"No cause is certain. {document['findings_note']}", width, style="dim"
        )
        return
    for number, finding in enumerate(document["findings"], start=1):
        yield _finding(finding, number, width)
    yield console.sentence(document["findings_note"], width, style="dim")


def _finding(finding: Json, number: int, width: int) -> RenderableType:
    size, share = finding["size"], finding["share"]
    head = (
        f"{number}. {finding['title']}: {quantities.time(size['value_ns'])} per "
        f"{finding['operation']} {texts.interval(size)}, {quantities.share(share['value'])} of "
        f"the time {quantities.share_interval(share['low'], share['high'], share['unit_count'])}"
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right", no_wrap=True)
    for line in finding["evidence"]:
        text = quantities.evidence(line)
        bounds = quantities.evidence_interval(line)
        table.add_row(f"   {texts.clean(line['label'])}", texts.clean(f"{text} {bounds}"))
    return Group(
        console.sentence(head, width, style="bold" if number == 1 else ""),
        table,
        console.sentence(finding["advice"], width, mark="   → "),
        Text(f"   {texts.clean(finding['source'])}", style="dim"),
    )

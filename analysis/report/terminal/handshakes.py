# SPDX-License-Identifier: GPL-2.0-only
"""The mean handshake and its parts, on the terminal."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console, ledger

Json = Mapping[str, Any]

FEW_HANDSHAKES: Final = 30
"""Fewer are no distribution: one line instead of a table."""
MOST_TASKS: Final = 5


def render(item: Json, width: int) -> RenderableType:
    """The mean handshake and its parts."""
    title = f"handshake: {item['label']}"
    quantiles = "  ".join(
        f"{quantities.quantile(one['q'])} {quantities.time(one['value_ns'])}"
        for one in item["distribution"]["quantiles"]
    )
    if item["mean"] is not None:
        quantiles = f"mean {quantities.time(item['mean']['value_ns'])}  {quantiles}"
    kinds = ("versions", "ciphers", "groups", "resumptions", "outcomes")
    facts = ", ".join(
        f"{value} {quantities.count(number)}"
        for kind in kinds
        for value, number in item[kind].items()
    )
    counted = f"{quantities.count(item['count'])} handshakes"
    if item["estimated_count"] is not None:
        number = quantities.count(round(item["estimated_count"]["value"]))
        counted += f" seen, {ledger.ESTIMATE_MARK}{number} in total ({item['estimate']})"
    notes = [f"{counted}  {quantiles}", facts]
    if basis := texts.parts_basis(item):
        notes.append(basis)
    if item["count"] < FEW_HANDSHAKES:
        lines = (console.sentence(note, width, style="dim") for note in notes)
        return Group(Text(), Text(texts.clean(title), style="bold"), *lines)
    bounds, write = texts.bounds_column(part["mean"] for part in item["parts"])
    table = console.table(title, "part", "mean", bounds, "share", "")
    table.columns[-1].justify = "left"
    for part in item["parts"]:
        table.add_row(
            texts.clean(part["label"]),
            quantities.time(part["mean"]["value_ns"]),
            write(part["mean"]),
            quantities.share(part["share"]),
            Text(console.bar(0, part["share"], 1), style="cyan"),
        )
    if tasks := texts.tasks(item)[:MOST_TASKS]:
        named = ", ".join(
            f"{texts.clean(task['function'])} {quantities.time(task['time_ns'])}" for task in tasks
        )
        notes.append(f"other computing, by samples: {named}")
    return console.titled(table, width, *notes)

# SPDX-License-Identifier: GPL-2.0-only
"""Commands at level `flow` on the terminal: reading, executing and answering, estimated."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console
from tlstax.analysis.report.terminal.ledger import ESTIMATE_MARK

Json = Mapping[str, Any]


def render(item: Json, width: int) -> RenderableType:
    """The parts with their intervals; in the calibration stretches exact and by samples."""
    if item["refusal"]:
        return console.sentence(item["refusal"], width)
    table = console.table(
        f"CPU time of commands, {item['label']}",
        *("part", "time", texts.INTERVAL, "share", "per command", "stretches: exact", "sampled"),
    )
    for line in item["lines"]:
        time = line["time"]
        table.add_row(
            texts.part(line["phase"]),
            f"{ESTIMATE_MARK}{quantities.time(time['value_ns'])}",
            texts.interval(time),
            f"{ESTIMATE_MARK}{quantities.share(line['share'])}",
            f"{ESTIMATE_MARK}{quantities.time(line['per_command_ns'])}",
            quantities.share(line["exact_share"]),
            quantities.share(line["sampled_share"]),
        )
    return console.titled(table, width, item["note"])

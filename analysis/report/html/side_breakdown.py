# SPDX-License-Identifier: GPL-2.0-only
"""What client and server did for one operation, as bars on one axis."""

from collections.abc import Mapping
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.report.html import bars
from tlstax.analysis.report.html.bars import Bar, Part

Json = Mapping[str, Any]

SIDES: Final = ("client", "server")
STATES: Final = {
    "cpu": "on_cpu",
    "runnable": "runnable",
    "wait": "blocked_other",
    "peer": "blocked_network",
}
"""The state whose colour a kind of part has."""
KINDS: Final = {
    "cpu": "computing",
    "runnable": "waiting for a CPU",
    "wait": "other waits",
    "peer": "waiting for the other side",
}


def of_operation(item: Json) -> bars.Picture:
    """Client and server of one workload."""
    return bars.picture(
        [
            Bar(
                side.capitalize(),
                [
                    _part(part, part["start_ns"], part["end_ns"], part["cost"])
                    for part in item["parts"]
                    if part["lane"] == side
                ],
            )
            for side in SIDES
        ]
    )


def of_pair(pair: Json) -> bars.Picture | None:
    """Client and server of a baseline and its cell; None where clients were not recorded."""
    if pair["both_sides"] is None:
        return None
    return bars.picture(
        [
            Bar(
                f"{side}, {'baseline' if which == 'before' else 'cell'}",
                [
                    _part(part, start, start + part[which]["value_ns"], part[which])
                    for part in pair["both_sides"]["parts"]
                    if part["lane"] == side and part[which]["value_ns"] > 0
                    for start in (part["starts_ns"][which == "after"],)
                ],
            )
            for side in SIDES
            for which in ("before", "after")
        ]
    )


def _part(part: Json, start_ns: float, end_ns: float, cost: Json) -> Part:
    time = quantities.time(cost["value_ns"])
    label = part["label"].replace(": CPU", "")
    fill = f"var(--state-{STATES[part['kind']]})"
    return Part(start_ns, end_ns, fill, f"{part['label']}: {time}", (f"{label} {time}", time))

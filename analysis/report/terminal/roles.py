# SPDX-License-Identifier: GPL-2.0-only
"""The ledger by what threads are for, on a terminal."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import RenderableType

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]


def render(item: Json, width: int, mark: str) -> RenderableType:
    """All threads by what they are for, without states in which none of them was."""
    states: dict[str, Callable[[Json], int]] = {
        "on CPU": lambda line: line["on_cpu_ns"],
        "runnable": lambda line: line["runnable_ns"] if width >= console.BARS_NEED else 0,
        "network": lambda line: line["blocked_ns"].get("blocked_network", 0),
        "disk": lambda line: line["blocked_ns"].get("blocked_disk", 0),
        "lock": lambda line: line["blocked_ns"].get("blocked_lock", 0),
        "futex": lambda line: line["blocked_ns"].get("blocked_futex", 0),
        "idle": lambda line: line["idle_ns"],
    }
    shown = {name: of for name, of in states.items() if any(map(of, item["roles"]))}
    table = console.table("threads by role", "role", *shown)
    for line in item["roles"]:
        role = f"{texts.name(line['role'])} ×{quantities.count(line['thread_count'])}"
        times = [of(line) for of in shown.values()]
        table.add_row(
            role, *(f"{mark}{quantities.time(time_ns)}" if time_ns else "" for time_ns in times)
        )
    return console.titled(table, width)

# SPDX-License-Identifier: GPL-2.0-only
"""The truth program's books as each level of detail tells them.

The program keeps two things apart that only some levels do: waits of a command for its client that
nothing announces (`untold`, counted by receives), and commands that came together with another
(`merged`, by count). With probes at commands both are part of `command`. At level `flow` reading,
executing and answering are one phase; an untold wait is idle, and what it brings is a command of
its own; merged commands are one.
"""

from collections import Counter
from typing import Any

TOLD_BY_PROBES = {"untold": "command"}
TOLD_BY_SOCKETS = {"record_read": "command", "record_write": "command", "untold": "command"}
NOT_COUNTED = ("record_read", "record_write", "untold", "merged")


def told_by_probes(books: dict[str, Any]) -> dict[str, Any]:
    """The books where commands have probes."""
    counts = {p: n for p, n in books["counts"].items() if p not in ("untold", "merged")}
    return books | {"cells": _cells(books["cells"], TOLD_BY_PROBES), "counts": counts}


def told_by_sockets(books: dict[str, Any]) -> dict[str, Any]:
    """The books at level `flow`."""
    told = books["counts"]
    counts = {phase: count for phase, count in told.items() if phase not in NOT_COUNTED}
    if "command" in counts:
        counts["command"] += told.get("untold", 0) - told.get("merged", 0)
    cells = dict(books["cells"])
    if "untold/blocked_network" in cells:
        waited_ns = cells.pop("untold/blocked_network") + cells.get("idle/blocked_network", 0)
        cells["idle/blocked_network"] = waited_ns
    return books | {"cells": _cells(cells, TOLD_BY_SOCKETS), "counts": counts}


def _cells(cells: dict[str, int], phases: dict[str, str]) -> dict[str, int]:
    """Cells with phases under other names."""
    summed: Counter[str] = Counter()
    for cell, ns in cells.items():
        phase, state = cell.split("/")
        summed[f"{phases.get(phase, phase)}/{state}"] += ns
    return dict(summed)

# SPDX-License-Identifier: GPL-2.0-only
"""The truth program's books as each level of detail tells them, and the ledger beside them.

The program keeps two things apart that only some levels do: waits of a command for its client that
nothing announces (`untold`, counted by receives), and commands that came together with another
(`merged`, by count). With probes at commands both are part of `command`. At level `flow` reading,
executing and answering are one phase; an untold wait is idle, and what it brings is a command of
its own; merged commands are one.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tlstax.collectors.capture.vocabulary import PHASES, STATES
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.probes.model import Level

TOLD_BY_PROBES = {"untold": "command"}
TOLD_BY_SOCKETS = {"record_read": "command", "record_write": "command", "untold": "command"}
NOT_COUNTED = ("record_read", "record_write", "untold", "merged")


@dataclass(frozen=True)
class Ledger:
    """One thread's account in the engine."""

    tid: int
    name: str
    lifetime_ns: int
    cells: dict[str, int]
    counts: dict[str, int]
    healed_count: int
    uncertain_ns: int
    uncounted_ns: int
    """On-CPU time that the thread's own CPU clock lacks: stolen, or charged to another thread."""
    exited: bool

    def phase_ns(self, *phases: str) -> int:
        """Time in all states of some phases."""
        return sum(ns for cell, ns in self.cells.items() if cell.split("/")[0] in phases)

    def state_ns(self, state: str) -> int:
        """Time in a state in all phases."""
        return sum(ns for cell, ns in self.cells.items() if cell.split("/")[1] == state)


@dataclass(frozen=True)
class Measured:
    """A run of the truth program: its own books, and the engine's."""

    pid: int
    books: list[dict[str, Any]]  # kind "thread"
    handshakes: list[dict[str, Any]]  # kind "handshake"
    ledgers: dict[int, list[Ledger]]  # by tid; a tid may be used twice
    records: list[layout.HandshakeRecord]
    losses: dict[str, int]  # of the ledger and the records: see real_losses
    level: Level = Level.RECORD
    latencies_ns: dict[str, int] = field(default_factory=dict)
    """Latencies of the instances of each phase together, to some per cent."""

    def ledger(self, tid: int) -> Ledger:
        """The only account of a thread."""
        (found,) = self.ledgers[tid]
        return found


def view(slot: SlotView) -> Ledger:
    """A slot with names instead of numbers."""
    cells = {
        f"{phase}/{state}": slot.cells[i * layout.STATE_CELLS + j]
        for i, phase in enumerate(PHASES)
        for j, state in enumerate(STATES)
        if slot.cells[i * layout.STATE_CELLS + j]
    }
    return Ledger(
        tid=slot.tid,
        name=slot.comm.decode(errors="replace"),
        lifetime_ns=slot.last_ns - slot.first_ns,
        cells=cells,
        counts={phase: slot.counts[i] for i, phase in enumerate(PHASES) if slot.counts[i]},
        healed_count=slot.healed_count,
        uncertain_ns=slot.uncertain_ns,
        uncounted_ns=slot.steal_ns + slot.handed_ns,
        exited=slot.exited,
    )


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

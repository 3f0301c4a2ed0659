# SPDX-License-Identifier: GPL-2.0-only
"""The part of a thread's running totals that earlier windows already contain."""

from dataclasses import dataclass, field
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.recording.programs.ledger_layout import PHASE_CELLS, STATE_CELLS
from tlstax.collectors.recording.programs.views import UNREAD, Counts

_CELLS: Final = PHASE_CELLS * STATE_CELLS


@dataclass
class ThreadAccount:
    """The part of a thread's totals that earlier windows already contain."""

    thread_id: int
    tid: int
    start_ns: int
    cells: list[int] = field(default_factory=lambda: [0] * _CELLS)
    uncertain_ns: int = 0
    healed_count: int = 0
    steal_ns: int = 0
    handed_ns: int = 0
    counts: Counts = UNREAD
    row: schema.Thread | None = None


def spent_since(before: list[int], now: list[int]) -> list[int]:
    """The time of each cell for this window: never negative, and in sum the time that passed.

    A cell that got too much in an earlier window, because the thread moved on while it was looked
    at, is put right by giving less to the others now.
    """
    spent = [value - already for value, already in zip(now, before, strict=True)]
    too_much = -sum(value for value in spent if value < 0)
    while too_much > 0 and max(spent) > 0:
        largest = spent.index(max(spent))
        taken = min(spent[largest], too_much)
        spent[largest] -= taken
        too_much -= taken
    return spent

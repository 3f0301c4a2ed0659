# SPDX-License-Identifier: GPL-2.0-only
"""What a stream tells of the accounts of threads: each as of the last frame that told it."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from tlstax.collectors.capture.vocabulary import PHASES, ROLES, STATES
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.views import Counts, SlotView
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import counted, records

_CELLS: Final = layout.PHASE_CELLS * layout.STATE_CELLS
_PHASES, _STATES = range(len(PHASES)), range(len(STATES))
_KNOWN_CELLS: Final = frozenset(
    (
        *(phase * layout.STATE_CELLS + state for phase, state in product(_PHASES, _STATES)),
        *(_CELLS + phase for phase in _PHASES),
    )
)
_VALUE_BYTES: Final = 8
_WORD_BITS: Final = 64

Key = tuple[int, int, int]  # slot, thread, when the thread started


@dataclass
class Account:
    """A thread's account so far."""

    cells: list[int] = field(default_factory=lambda: [0] * (_CELLS + layout.PHASE_CELLS))
    slot: Any = None  # struct stream_slot, with what changed since
    view: SlotView | None = None

    @property
    def span(self) -> int:
        """1 + number of the plan's span on the thread's stack; 0: none."""
        return self.slot.span if self.slot is not None else 0

    def take(self, index: int, value: int) -> None:
        """A cell's total. Raises ValueError for one that no recorder has; others are told, as 0."""
        if value and index not in _KNOWN_CELLS:
            raise ValueError(f"cell {index}")
        self.cells[index] = value

    def look(self) -> None:
        """Make the view anew. Raises ValueError for a phase, state or role that there is not."""
        self.view = _view(self.slot, self.cells)


class AccountTotals:
    """All of them; those of threads that ended stay until somebody takes them out."""

    def __init__(self) -> None:
        self.live: dict[Key, Account] = {}
        self.ended: dict[Key, Account] = {}
        self._in_slot: dict[int, Account] = {}

    def takers(self) -> tuple[tuple[str, Callable[[bytes], None]], ...]:
        """The frames that tell of accounts, and what takes each. They raise ValueError."""
        return (("SLOT", self._take_slots), ("CHANGE", self._take_changes))

    def _take_slots(self, content: bytes) -> None:
        cell_bytes = definition().structures["stream_cell"].size_bytes
        for slot, cells in counted("slot", content, "cells_count", cell_bytes):
            key = (slot.index, slot.tid, slot.thread_start_ns)
            account = self._in_slot[slot.index] = self.live.setdefault(key, Account())
            for cell in records("cell", cells):
                account.take(cell.index, cell.value)
            account.slot = slot
            account.look()
            if slot.status == layout.ThreadStatus.EXITED:
                self.ended[key] = self.live.pop(key)
                del self._in_slot[slot.index]

    def _take_changes(self, content: bytes) -> None:
        for change, raw in counted("change", content, "cells_count", _VALUE_BYTES):
            account = self._in_slot.get(change.index)
            cells = list(_numbers_of(change.cells))
            if account is None or len(cells) != change.cells_count:
                raise ValueError(f"a change of slot {change.index}")
            for index, value in zip(cells, struct.unpack(f"<{len(cells)}Q", raw), strict=True):
                account.take(index, value)
            for name in ("state", "owner", "last_ns", "steal_ns", "handed_ns"):
                setattr(account.slot, name, getattr(change, name))
            account.look()


def _numbers_of(words: Any) -> Iterator[int]:
    """The bits that are set, from the lowest of the first word on."""
    bits = sum(word << _WORD_BITS * at for at, word in enumerate(words))
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def require_cell(phase: int, state: int = 0) -> None:
    """Raises ValueError for a phase or state that there is not."""
    if phase not in _PHASES or state not in _STATES:
        raise ValueError(f"phase {phase} and state {state}")


def _view(slot: Any, cells: list[int]) -> SlotView:
    require_cell(slot.owner, slot.state)
    if slot.role >= len(ROLES):
        raise ValueError(f"role {slot.role}")
    return SlotView(
        index=slot.index,
        tid=slot.tid,
        exited=slot.status == layout.ThreadStatus.EXITED,
        paused=slot.status == layout.ThreadStatus.PAUSED,
        role=slot.role,
        comm=bytes(slot.comm),
        thread_start_ns=slot.thread_start_ns,
        first_ns=slot.first_ns,
        last_ns=slot.last_ns,
        state=slot.state,
        owner=slot.owner,
        uncertain_ns=slot.uncertain_ns,
        steal_ns=slot.steal_ns,
        handed_ns=slot.handed_ns,
        healed_count=slot.healed_count,
        cells=tuple(cells[:_CELLS]),
        counts=tuple(cells[_CELLS:]),
        first_counts=_counts(slot.first_counts),
        kernel_counts=_counts(slot.counts),
    )


def _counts(counts: Any) -> Counts:
    return Counts(
        *(counts.time_ns, counts.cpu_ns, counts.wait_ns, counts.switch_count, counts.seen_count)
    )

# SPDX-License-Identifier: GPL-2.0-only
"""Roles of the server's threads that serve no client.

New servers name their threads. In old ones the role follows from the functions in which a thread
started and which it never leaves. Their return addresses are at the base of its stack, next to its
start routine, which is in the thread's control block. That memory is read a few times at most for
each such thread, compared with the addresses of the functions that the definitions name, and
dropped. Nothing is stopped, and no stack is walked: that would need frame pointers in the C
library.
"""

import os
from array import array
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tlstax.collectors.capture.vocabulary import ROLES
from tlstax.collectors.placement.model import RoleMark
from tlstax.collectors.recording.engine.ledger_maps import SlotView

# A page boundary in between is harmless: all of it belongs to the thread's own mapping.
STACK_BYTES: Final = 16384  # below the control block: thread-local variables, then frames
CONTROL_BYTES: Final = 2048  # struct pthread up to and with its start routine
LOOKS_COUNT: Final = 3  # a thread that was just made has no frames yet
BACKGROUND: Final = ROLES[0]


@dataclass
class _Known:
    """What is known about a thread."""

    name: bytes
    role: str
    looks_count: int


class ThreadRoles:
    """Roles of one process's background threads, each looked up a few times at most."""

    def __init__(self, pid: int, marks: tuple[RoleMark, ...]) -> None:
        self._pid = pid
        self._marks = marks
        self._spans = [(*span, mark.role) for mark in marks for span in mark.spans]
        self._lowest = min((start for start, _, _ in self._spans), default=0)
        self._highest = max((end for _, end, _ in self._spans), default=0)
        self._known: dict[tuple[int, int], _Known] = {}

    def role_of(self, slot: SlotView) -> str:
        """The role of a background thread; `background` when no role is found."""
        key = (slot.tid, slot.thread_start_ns)
        known = self._known.get(key)
        if known is None or known.name != slot.comm:
            known = self._known[key] = _Known(slot.comm, self._by_name(slot), 0)
        if known.role == BACKGROUND and known.looks_count < LOOKS_COUNT and not slot.exited:
            known.looks_count += 1
            known.role = self._by_stack(slot)
        return known.role

    def forget(self, slot: SlotView) -> None:
        """Drop a thread that has ended."""
        self._known.pop((slot.tid, slot.thread_start_ns), None)

    def _by_name(self, slot: SlotView) -> str:
        name = slot.comm.decode("utf-8", "replace")
        for mark in self._marks:
            first = mark.main and slot.tid == self._pid
            if first or any(fnmatchcase(name, pattern) for pattern in mark.names):
                return mark.role
        return BACKGROUND

    def _by_stack(self, slot: SlotView) -> str:
        """The function nearest to the base of the stack decides."""
        if not self._spans or not slot.stack_base:
            return BACKGROUND
        for word in reversed(self._summary(slot.stack_base)):
            if self._lowest <= word < self._highest:
                for start, end, role in self._spans:
                    if start <= word < end:
                        return role
        return BACKGROUND

    def _summary(self, stack_base: int) -> "array[int]":
        """The thread's memory around its control block, as far as it can be read."""
        summary = array("Q")
        with suppress(OSError):
            memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                start = stack_base - STACK_BYTES
                raw = os.pread(memory, STACK_BYTES + CONTROL_BYTES, start)
            finally:
                os.close(memory)
            summary.frombytes(raw[: len(raw) & ~7])
        return summary

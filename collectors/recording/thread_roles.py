# SPDX-License-Identifier: GPL-2.0-only
"""Roles of the server's threads that serve no client.

New servers name their threads. In old ones the role follows from the functions in which a thread
started and which it never leaves: the recorder compares the words at the base of its stack with
them (collectors/recorder/roles.c), and sends the number of the one that it found.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tlstax.collectors.capture.vocabulary import ROLES
from tlstax.collectors.placement.model import RoleMark
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.collectors.recording.stream.replay import Replay

BACKGROUND: Final = ROLES[0]


@dataclass
class _Known:
    """What is known about a thread."""

    name: bytes
    role: str


class ThreadRoles:
    """Roles of one process's background threads."""

    def __init__(self, replay: Replay, marks: tuple[RoleMark, ...]) -> None:
        self._replay = replay
        self._marks = marks
        self._roles = [mark.role for mark in marks for _ in mark.spans]
        self._known: dict[tuple[int, int], _Known] = {}

    def role_of(self, slot: SlotView) -> str:
        """The role of a background thread; `background` when no role is found."""
        key = (slot.tid, slot.thread_start_ns)
        known = self._known.get(key)
        if known is None or known.name != slot.comm:
            known = self._known[key] = _Known(slot.comm, self._by_name(slot))
        if known.role == BACKGROUND:
            known.role = self._by_stack(slot)
        return known.role

    def forget(self, slot: SlotView) -> None:
        """Drop a thread that has ended."""
        self._known.pop((slot.tid, slot.thread_start_ns), None)

    def _by_name(self, slot: SlotView) -> str:
        name = slot.comm.decode("utf-8", "replace")
        for mark in self._marks:
            first = mark.main and slot.tid == self._replay.pid
            if first or any(fnmatchcase(name, pattern) for pattern in mark.names):
                return mark.role
        return BACKGROUND

    def _by_stack(self, slot: SlotView) -> str:
        span = self._replay.span_of(slot)
        return self._roles[span - 1] if 0 < span <= len(self._roles) else BACKGROUND

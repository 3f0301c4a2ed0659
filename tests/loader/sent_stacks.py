# SPDX-License-Identifier: GPL-2.0-only
"""Stacks that the programs in the kernel sent, by number: those of the present round and the last.

The programs remember a bounded number of stacks as sent. Before that is full, a round ends: they
forget, and send a stack again under another number. What still refers to an older number keeps it
for one more round.
"""

import struct
from typing import Final

STACKS_MOST: Final = 24576
"""A round ends after so many; the programs remember 32768."""


class SentStacks:
    """Addresses of stacks by number."""

    def __init__(self) -> None:
        self._stacks: dict[int, bytes] = {}
        self._older: dict[int, bytes] = {}
        self._sent_count = 0

    def keep(self, record: bytes) -> None:
        """Store a record of the ring: number, count, addresses, innermost first."""
        number, count = struct.unpack_from("=II", record)
        self._stacks[number] = record[8 : 8 + count * 8]
        self._sent_count += 1

    def end_round(self) -> bool:
        """End the round if it is full; whether it was, so that the programs must forget."""
        if self._sent_count <= STACKS_MOST:
            return False
        self._sent_count = 0
        self._older, self._stacks = self._stacks, {}
        return True

    def __contains__(self, stack: int) -> bool:
        return stack in self._stacks or stack in self._older

    def addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a stack, innermost first; empty if it is not known, or forgotten."""
        found = self._stacks.get(stack) or self._older.get(stack, b"")
        return struct.unpack(f"={len(found) // 8}Q", found)

# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the kernel rung: what BPF objects exist in the kernel right now."""

import time
from collections.abc import Callable

import pytest

from tlstax.collectors.doctor_syscalls import Command, next_id

IDENTIFIED = (Command.PROG_GET_NEXT_ID, Command.MAP_GET_NEXT_ID, Command.LINK_GET_NEXT_ID)
FREED_SECONDS = 5.0


def identifiers() -> set[tuple[str, int]]:
    """Kind and id of every BPF program, map and link in the kernel."""
    found: set[tuple[str, int]] = set()
    for command in IDENTIFIED:
        last = next_id(command, 0)
        while last is not None:
            found.add((command.name, last))
            last = next_id(command, last)
    return found


@pytest.fixture
def leftover() -> Callable[[], set[tuple[str, int]]]:
    """Objects that came during the test and stay; freeing is deferred, so it waits a little."""
    before = identifiers()

    def remaining() -> set[tuple[str, int]]:
        end = time.monotonic() + FREED_SECONDS
        while (more := identifiers() - before) and time.monotonic() < end:
            time.sleep(0.05)
        return more

    return remaining

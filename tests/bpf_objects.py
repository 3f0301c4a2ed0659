# SPDX-License-Identifier: GPL-2.0-only
"""The BPF programs, maps and links of this kernel: what a recording must not leave behind."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tlstax.collectors.host.bpf import Command, next_id

Objects = set[tuple[str, int]]
_IDENTIFIED: Final = (
    Command.PROG_GET_NEXT_ID,
    Command.MAP_GET_NEXT_ID,
    Command.LINK_GET_NEXT_ID,
)
_FREED_S: Final = 30.0
_HELD: Final = re.compile(r"^(prog|map|link)_id:\s*(\d+)$", re.MULTILINE)


def _identifiers() -> Objects:
    """Kind and id of every object in the kernel."""
    found: Objects = set()
    for command in _IDENTIFIED:
        last = next_id(command, 0)
        while last is not None:
            found.add((command.name, last))
            last = next_id(command, last)
    return found


def _held_by_others() -> Objects:
    """Those that another process on this host holds open: other measurements, not leftovers."""
    held: Objects = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            texts = [file.read_text() for file in (entry / "fdinfo").iterdir()]
        except OSError:  # it ended, or closed the file, just now
            continue
        for text in texts:
            for kind, number in _HELD.findall(text):
                held.add((f"{kind.upper()}_GET_NEXT_ID", int(number)))
    return held


def watch_leftovers() -> Callable[[], Objects]:
    """A function that tells which objects came since and stay; freeing is deferred: it waits.

    Objects that come while it waits are those of other processes, which may be many in turn.
    """
    before = _identifiers()

    def unheld() -> Objects:
        return _identifiers() - before - _held_by_others()

    def remaining() -> Objects:
        end_s = time.monotonic() + _FREED_S
        suspects = unheld()
        while suspects and time.monotonic() < end_s:
            time.sleep(0.05)
            suspects &= unheld()
        return suspects

    return remaining

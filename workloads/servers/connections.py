# SPDX-License-Identifier: GPL-2.0-only
"""Waiting until a server has no client left, without asking the server.

A statement that asks would itself be work inside of what is measured, so the kernel is asked
instead: how many sockets does the process hold.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from tlstax import ExitCode, TlstaxError

LOOK_S = 0.02
# From closing its socket to parking itself a server thread needs well under a millisecond.
SETTLE_S = 0.05
PATIENCE_S = 10.0


def socket_count(pid: int) -> int:
    """The sockets that process `pid` holds open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(entry).startswith("socket:")
        except FileNotFoundError:  # closed between the two looks
            continue
    return count


def await_quiet(pid: int, baseline_count: int, wait: Callable[[float], None] = time.sleep) -> None:
    """Wait until `pid` is back at `baseline_count` sockets; TlstaxError (FAILED) if it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while (count := socket_count(pid)) > baseline_count:
        if time.monotonic() > deadline:
            raise TlstaxError(
                "connections stayed open after a run",
                f"{PATIENCE_S:.0f} s after its driver ended the server holds {count} sockets"
                f" instead of {baseline_count}",
                "Run it again while nobody else uses the server",
                ExitCode.FAILED,
            )
        wait(LOOK_S)
    wait(SETTLE_S)

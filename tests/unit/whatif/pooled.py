# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of persistent connections with few handshakes, computed, without a driver."""

from collections.abc import Callable

from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.schema import (
    Handshake,
    Ledger,
    PhaseCount,
    System,
    Target,
    Thread,
    Window,
)

S = 1_000_000_000
MS = 1_000_000
COMMANDS = 2000
"""Of a window, which is a second."""
COMMAND_NS = 100 * MS
"""CPU time of all of them."""
SIGN_NS, OTHER_NS = 3_800_000, 200_000
"""Of a handshake with RSA-4096, and of the rest of it."""


def pooled(count: int, shakes_in: Callable[[int], int]) -> RecordingSelection:
    """`count` windows of a second with the same commands; handshakes as often as is asked for."""
    rows = tables.Tables(
        targets=[Target(1, 9, "mariadbd", "", "mariadb", "11", "OpenSSL", "3.0.19", "shared")],
        threads=[Thread(1, 9, "one", "connection", 0, None)],
    )
    for number in range(1, count + 1):
        start, shakes = number * S, shakes_in(number)
        rows.windows.append(Window(number, None, start, start + S, 1, "full"))
        rows.system.append(System(number, S // 10, 0, 0, 0, S, 0, 0))
        rows.ledger.append(Ledger(number, 1, "command", "on_cpu", COMMAND_NS))
        rows.phase_counts += [
            PhaseCount(number, "command", COMMANDS), PhaseCount(number, "record_write", COMMANDS)
        ]  # fmt: skip
        if not shakes:
            continue
        rows.ledger += [
            Ledger(number, 1, "sign", "on_cpu", shakes * SIGN_NS),
            Ledger(number, 1, "handshake", "on_cpu", shakes * OTHER_NS),
        ]
        rows.phase_counts += [PhaseCount(number, name, shakes) for name in ("connect", "handshake")]
        rows.handshakes += [
            Handshake(
                number * 1000 + at, number, 9, start, start + 5 * MS, SIGN_NS + OTHER_NS, 0, 0, 0,
                SIGN_NS, 0, 0, 0, 0, 2, 2, "success", "TLSv1.3", "TLS_AES_256_GCM_SHA384",
                "X25519", 0,
            )
            for at in range(shakes)
        ]  # fmt: skip
    return RecordingSelection("pooled", rows, selections.matching(rows, "")[0])

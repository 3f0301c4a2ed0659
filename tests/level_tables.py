# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a recording at level `record`, as lower levels would have them."""

import dataclasses
from typing import Final

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.schema import Stack

CALLERS: Final = {"record_read": "SSL_read", "record_write": "SSL_write"}


def as_flow(recorded: Tables) -> Tables:
    """As level flow would have it: one phase for all that a command does.

    Its walks by frame pointers went astray above the leaf; whole ones lead to the function that the
    server reads or writes by.
    """
    frames, stacks, samples = list(recorded.frames), list(recorded.stacks), []
    known = {stack.stack_id: frame_ids.parse(stack.frame_ids) for stack in stacks}
    library = next(frame for frame in frames if frame.object.endswith("libssl.so.3"))
    callers = dict(zip(CALLERS, range(1 << 30, 1 << 31), strict=False))
    for phase, number in callers.items():
        frames.append(library._replace(frame_id=number, symbol=CALLERS[phase], code=""))
    made: dict[tuple[str, int | None], int] = {}
    for row in recorded.samples:
        if row.phase in callers:
            key = row.phase, row.user_stack_id
            if key not in made:
                made[key] = (1 << 30) + len(made)
                ids = [*known.get(row.user_stack_id or 0, ())[:1], callers[row.phase]]
                stacks.append(Stack(made[key], " ".join(map(str, ids))))
            row = row._replace(phase="command", user_stack_id=made[key])
        samples.append(row)
    return dataclasses.replace(
        recorded,
        windows=[window._replace(level="flow") for window in recorded.windows],
        ledger=[
            row._replace(phase="command") if row.phase in CALLERS else row
            for row in recorded.ledger
        ],
        samples=samples,
        frames=frames,
        stacks=stacks,
    )


def with_signatures(recorded: Tables) -> Tables:
    """With level signature in three of four windows: handshakes without their other operations."""
    windows = [
        window._replace(level="signature" if window.window_id % 4 else window.level)
        for window in recorded.windows
    ]
    unseen = {window.window_id for window in windows if window.level == "signature"}
    handshakes = [
        row._replace(keygen_ns=-1, derive_ns=-1, verify_ns=-1, certificate_ns=-1)
        if row.window_id in unseen
        else row
        for row in recorded.handshakes
    ]
    return dataclasses.replace(recorded, windows=windows, handshakes=handshakes)

# SPDX-License-Identifier: GPL-2.0-only
"""The frames of a stack as a capture stores them, and how many are read."""

import re
from typing import Final

FRAMES_MAX: Final = 512
"""Frames of a stack that are read or imported, innermost first. The kernel and perf walk 127 unless
told otherwise; work grows with the square of the depth. `stack_cut` counts the samples and waits
whose stack has more."""
_DIGITS_MAX: Final = 19
_IDS: Final = re.compile(r"(?:[0-9]{1,19} ?)*")  # as recorders write them


def parse(text: str) -> tuple[int, ...]:
    """The ids in `Stack.frame_ids`, at most FRAMES_MAX; what cannot be an id is left out."""
    parts = text.split(None, FRAMES_MAX)[:FRAMES_MAX]
    if _IDS.fullmatch(text) is None:
        parts = [
            part for part in parts if part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX
        ]
    return tuple(map(int, parts))


def is_cut(text: str) -> bool:
    """Whether the stack has more frames than are read."""
    return len(text.split(None, FRAMES_MAX)) > FRAMES_MAX

# SPDX-License-Identifier: GPL-2.0-only
"""Stretches: windows with a ledger that follow each other, so that a wait can reach across them."""

from collections.abc import Iterable
from typing import Final

from tlstax.collectors.capture.schema import Window
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

GAP_NS: Final = 1_000_000
"""Least time between two windows of which nothing is known."""


def follows(before: Window, after: Window) -> bool:
    """Whether nothing was missed between two windows of a target."""
    return before.run_id == after.run_id and after.start_ns - before.end_ns < GAP_NS


def of_windows(windows: Iterable[Window]) -> list[list[Window]]:
    """The stretches of all targets, each in order of time."""
    found: list[list[Window]] = []
    for window in sorted(windows, key=lambda one: (one.target_id, one.start_ns)):
        if window.level not in LEDGER_LEVELS:
            continue
        last = found[-1][-1] if found else None
        if last and last.target_id == window.target_id and follows(last, window):
            found[-1].append(window)
        else:
            found.append([window])
    return found

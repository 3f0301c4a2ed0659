# SPDX-License-Identifier: GPL-2.0-only
"""Threads that found no room in the ledger: how many, and their CPU time."""

from collections.abc import Collection
from typing import Final

from tlstax.analysis.model.tables import RoleLine
from tlstax.analysis.model.trust import UntrackedThreads
from tlstax.analysis.rows import coverage
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

ROLE: Final = "untracked"
"""The line of these threads among the roles."""


def find(tables: Tables, window_ids: Collection[int] | None = None) -> UntrackedThreads | None:
    """Those of these windows, or of all; None where every thread had an account.

    Their CPU time is what the CPU clock of the process counted beyond the threads that have one,
    scaled like the ledger where that was kept for a part of the time. The clock and the accounts
    are not read at one moment, so a window may count too much and the next one too little: only
    the sum is kept from being negative.
    """
    weights = coverage.cover(tables.windows, LEDGER_LEVELS).weights
    worst = (0, 0)
    missing_ns = process_ns = 0.0
    before_count = 0
    for row in tables.process_clocks:
        lacking = max(row.untracked_count, before_count)
        before_count = row.untracked_count
        if window_ids is not None and row.window_id not in window_ids:
            continue
        worst = max(worst, (row.untracked_count, row.thread_count))
        weight = weights.get(row.window_id, 1.0)
        if row.process_cpu_ns is not None:
            process_ns += weight * row.process_cpu_ns
            if lacking:
                missing_ns += weight * (row.process_cpu_ns - row.account_cpu_ns)
    if not worst[0]:
        return None
    missing_ns = max(0.0, missing_ns)
    share = missing_ns / process_ns if process_ns else None
    return UntrackedThreads(*worst, round(missing_ns), share)


def role_lines(tables: Tables, window_ids: Collection[int]) -> list[RoleLine]:
    """Their line among the roles of these windows."""
    found = find(tables, window_ids)
    if found is None:
        return []
    meaning = "found no room in the ledger: only their number and CPU time are known"
    return [RoleLine(ROLE, meaning, found.thread_count, found.cpu_ns, 0, 0, {}, 0)]

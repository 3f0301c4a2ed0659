# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes, which of them signed, and how long signatures took, by block."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from tlstax.analysis.findings.throughout import Add
from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Handshake

TYPICAL: Final = 0.1
"""Quantile of the wall times of a signature: waits for a CPU only lengthen them, so that a short
one is nearest to the CPU time. On a busy host even these are too long, and the ledger's mean counts
where it is less.
"""


def add_exact_handshakes(
    add: Add, everywhere: Mapping[int, int], block_of: Mapping[int, int], tables: Tables
) -> None:
    """Handshakes of all windows and which of them signed, scaled to the time of dense windows.

    They are those of the ledger, however they end: those that fail or are given up may have signed,
    too. No time is added where all windows are dense: the ledger has it all.
    """
    span_ns: dict[int, int] = defaultdict(int)
    dense_ns: dict[int, int] = defaultdict(int)
    seen = set()
    for window in tables.windows:
        block = everywhere.get(window.window_id)
        if block is None or window.level not in HANDSHAKE_LEVELS:
            continue
        seen.add(window.window_id)
        span_ns[block] += window.end_ns - window.start_ns
        if window.window_id in block_of:
            dense_ns[block] += window.end_ns - window.start_ns
    signs: dict[int, list[int]] = defaultdict(list)
    whole: dict[int, int] = defaultdict(int)
    for row in tables.handshakes:
        if row.window_id not in seen:
            continue
        block, is_dense = everywhere[row.window_id], row.window_id in block_of
        add(f"all:{'signed' if row.sign_ns > 0 else 'unsigned'}", block, 1)
        if row.outcome == "success":
            add("all:records", block, 1)
        if row.sign_ns > 0:
            signs[block].append(row.sign_ns)
            add("dense:signed", block, is_dense)
        whole[block] += 1
        add("dense:ended", block, is_dense and has_ended(row))
    for row_count in tables.phase_counts:
        if row_count.phase == "handshake" and row_count.window_id in seen:
            add("all:handshake", everywhere[row_count.window_id], row_count.ended_count)
    if span_ns == dense_ns:
        return
    most_ns = _cpu_of_signature(block_of, tables)
    for block, count in whole.items():
        part = dense_ns[block] / span_ns[block]
        add("exact:handshake", block, count * part)
        if times := signs[block]:
            typical_ns = min(float(np.quantile(times, TYPICAL)), most_ns)
            add("exact:signed", block, len(times) * part)
            add("exact:sign", block, len(times) * part * typical_ns)


def has_ended(row: Handshake) -> bool:
    """Whether a handshake has ended its phase: one that was given up has not."""
    return row.outcome != "abandoned"


def _cpu_of_signature(block_of: Mapping[int, int], tables: Tables) -> float:
    """CPU time of a signature in ns by the ledger of all dense windows; infinite without one.

    Some records may be lost: the recorded signatures count as often as handshakes ended for each
    record of one that did. Handshakes that were given up have ended nothing, and may have signed.
    """
    shakes = sum(
        row.ended_count
        for row in tables.phase_counts
        if row.phase == "handshake" and row.window_id in block_of
    )
    rows = [row for row in tables.handshakes if row.window_id in block_of]
    ended = sum(map(has_ended, rows))
    signs = sum(row.sign_ns > 0 for row in rows) * (shakes / ended if ended else 1.0)
    cpu_ns = sum(
        row.time_ns
        for row in tables.ledger
        if (row.phase, row.state) == ("sign", "on_cpu") and row.window_id in block_of
    )
    return cpu_ns / signs if signs and cpu_ns else math.inf

# SPDX-License-Identifier: GPL-2.0-only
"""Which handshakes were followed from beginning to end.

With a budget the ledger is kept in dense windows only. A handshake that began before such a window,
or ended after it, was not followed throughout: what it waited for is unknown (-1), although its
wall time and its operations are exact.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tlstax.collectors.capture.schema import Handshake, Window
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS


def with_known_parts(rows: Sequence[Handshake], windows: Iterable[Window]) -> list[Handshake]:
    """The rows; the waits of those that were not followed throughout are unknown."""
    spans: dict[int, list[tuple[int, int]]] = {}
    targets: dict[int, int] = {}
    for window in sorted(windows, key=lambda one: one.start_ns):
        targets[window.window_id] = window.target_id
        if window.level not in LEDGER_LEVELS:
            continue
        mine = spans.setdefault(window.target_id, [])
        if mine and mine[-1][1] >= window.start_ns:
            mine[-1] = (mine[-1][0], max(mine[-1][1], window.end_ns))
        else:
            mine.append((window.start_ns, window.end_ns))
    return [
        row if _is_within(row, spans.get(targets.get(row.window_id, 0), [])) else _unknown(row)
        for row in rows
    ]


def _is_within(row: Handshake, spans: Sequence[tuple[int, int]]) -> bool:
    if row.on_cpu_ns < 0:
        return True
    at = bisect_right(spans, (row.start_ns, float("inf"))) - 1
    return at >= 0 and row.end_ns <= spans[at][1]


def _unknown(row: Handshake) -> Handshake:
    return row._replace(on_cpu_ns=-1, runnable_ns=-1, blocked_network_ns=-1, blocked_other_ns=-1)

# SPDX-License-Identifier: GPL-2.0-only
"""Sums of one window after another, without keeping what they were made of."""

from collections.abc import Sequence

from tlstax.analysis.fleet.rollup import intervals
from tlstax.analysis.fleet.rollup.intervals import Sums
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.rows.edges.followed import with_known_parts
from tlstax.analysis.rows.edges.retracted import Retractions
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS


class WindowSums:
    """Of one recorder: it knows the threads that live."""

    def __init__(self) -> None:
        self._threads: dict[int, schema.Thread] = {}
        self._followed: schema.Window | None = None  # the stretch in which the ledger was kept
        self._retractions = Retractions()

    def of(self, rows: Sequence[schema.Row], recording: Recording) -> Sums:
        """The sums of a window's rows, in the interval in which it began."""
        tables = Tables()
        lists = {
            schema.Window: tables.windows,
            schema.Ledger: tables.ledger,
            schema.ProcessClock: tables.process_clocks,
            schema.PhaseCount: tables.phase_counts,
            schema.Latency: tables.latencies,
            schema.Handshake: tables.handshakes,
            schema.System: tables.system,
            schema.Effect: tables.effects,
            schema.Loss: tables.losses,
        }
        for row in rows:
            if isinstance(row, schema.Thread):
                self._threads[row.thread_id] = row
            elif type(row) in lists:
                lists[type(row)].append(row)  # type: ignore[attr-defined]  # by its own type
        tables.phase_counts, tables.latencies = self._retractions.settle(
            tables.phase_counts, tables.latencies
        )
        tables.threads = list(self._threads.values())
        tables.handshakes = with_known_parts(tables.handshakes, self._stretches(tables.windows))
        sums = intervals.sum_up(tables, recording, {})
        for thread in tables.threads:
            if thread.end_ns is not None:
                del self._threads[thread.thread_id]
        return sums

    def _stretches(self, windows: Sequence[schema.Window]) -> list[schema.Window]:
        """The windows, the first of them from where the ledger has been kept since."""
        made = []
        for window in windows:
            before = self._followed
            if window.level not in LEDGER_LEVELS:
                self._followed = None
            elif before is not None and before.end_ns == window.start_ns:
                self._followed = window._replace(start_ns=before.start_ns)
            else:
                self._followed = window
            made.append(self._followed or window)
        return made

# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a capture as a watch gets them: window by window."""

import os
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet.columns import HOUR_NS
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.rollups import Destination, Rollups
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import schema

NOON_NS: Final = 1_795_348_800 * 1_000_000_000
"""A full hour of the wall clock."""
_OF_WINDOW: Final = (
    "ledger", "process_clocks", "phase_counts", "latencies", "handshakes", "system", "effects",
    "losses",
)  # fmt: skip


def facts(tables: Tables) -> list[schema.Row]:
    """What a recorder says when it was attached."""
    meta = tables.meta | {"start_cpu_ns": "0"}
    return [*(schema.Meta(key, value) for key, value in meta.items()), *tables.targets]


def by_window(tables: Tables) -> list[list[schema.Row]]:
    """The rows of each window in order; a thread is told when it is seen first, and at its end."""
    rows: dict[int, list[schema.Row]] = defaultdict(list)
    seen: dict[int, list[int]] = defaultdict(list)
    for name in _OF_WINDOW:
        for row in getattr(tables, name):
            rows[row.window_id].append(row)
    for line in tables.ledger:
        seen[line.thread_id].append(line.window_id)
    for thread in tables.threads:
        if mine := seen[thread.thread_id]:
            rows[min(mine)].insert(0, thread._replace(end_ns=None))
            rows[max(mine)].append(thread)
    windows = sorted(tables.windows, key=lambda one: one.start_ns)
    return [[window, *rows[window.window_id]] for window in windows]


class Watching:
    """A sink whose clock the test sets, and what it said."""

    def __init__(self, data: Path, tables: Tables, host: str = "db1", **to: Any) -> None:
        self.said: list[str] = []
        self.counters = Counters()
        self.servers = ServerCounters({host: self.counters})
        self.tables = tables
        first_ns = min(window.start_ns for window in tables.windows)
        self.offset_ns = NOON_NS + HOUR_NS // 2 - first_ns
        known: dict[str, Any] = {"cluster": "", "every_s": 10, "keep_s": 86400.0} | to
        self.sink = Rollups(
            Destination(data, host, **known), self.said.append, self.counters, self._offset_ns
        )
        self.sink.begin(facts(tables))

    def _offset_ns(self) -> int:
        return self.offset_ns

    def take(self, rows: list[list[schema.Row]]) -> None:
        """Take windows."""
        for one in rows:
            self.sink.window(one)

    def all(self) -> None:
        """Take the whole recording, and end."""
        self.take(by_window(self.tables))
        self.end()

    def end(self) -> None:
        """As SIGTERM does."""
        self.sink.detached()
        self.sink.close()

    def kill(self) -> None:
        """As kill -9 does: nothing is written, and the kernel closes the descriptors."""
        os.close(self.sink._claim)

# SPDX-License-Identifier: GPL-2.0-only
"""What a watch has seen since it began, as totals that only grow: what metrics are made of.

The watch adds to them, a thread that answers scrapes reads them. Their number is bounded.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tlstax.analysis.fleet.continuous.triggers import TRIGGERS
from tlstax.analysis.fleet.rollup import intervals
from tlstax.analysis.fleet.rollup.intervals import Sums
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import schema

KINDS_MOST: Final = 100
"""Kinds of handshakes that are counted apart; of the others only the outcome is."""
OTHER: Final = "other"
_ALL: Final = 1 << 62
"""An interval that holds every time."""


class Counters:
    """Totals of a watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begun_ns = time.time_ns()
        """When they were 0, in ns since 1970."""
        self.sums = intervals.no_sums()
        self.facts = Tables()
        self.is_attached = False
        self.attached_count = 0
        """Servers that were attached to: the first, and one for each restart that was followed."""
        self.level = ""
        self.resident_bytes = 0
        self.window_wall_s = 0.0
        self.rollup_wall_s = 0.0
        self.triggers: dict[str, int] = dict.fromkeys(TRIGGERS, 0)
        """How often each fired."""
        self.failed_count = 0
        self.lost_count = 0
        self.unexplained_count = 0
        """Hours whose findings or stacks were lost."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Read them while nothing is added."""
        with self._lock:
            yield

    def attached(self, facts: Tables) -> None:
        """A recorder was attached."""
        with self._lock:
            self.attached_count += facts.targets != self.facts.targets
            self.facts = facts
            self.level = facts.meta.get("command_level", "")
            self.is_attached = True

    def detached(self) -> None:
        """It was detached."""
        with self._lock:
            self.is_attached = False

    def add(self, sums: Sums, rows: Sequence[schema.Row]) -> None:
        """Add a window."""
        with self._lock:
            intervals.add(self.sums, self._bounded(sums), _ALL)
            self.window_wall_s = time.time()
            for row in rows:
                if isinstance(row, schema.System):
                    self.resident_bytes = row.engine_rss_bytes

    def _bounded(self, sums: Sums) -> Sums:
        """The same with no more kinds of handshakes than there may be, and without networks."""
        kinds = intervals.no_sums().handshake
        for key, numbers in sums.handshake.items():
            is_known = (0, *key[1:]) in self.sums.handshake
            if not is_known and len(self.sums.handshake) + len(kinds) >= KINDS_MOST:
                key = (*key[:2], *[OTHER] * 4)
            for name, value in numbers.items():
                kinds[key][name] += value
        return sums._replace(handshake=kinds, client_net={})

    def triggered(self, trigger: str) -> None:
        """A trigger fired."""
        with self._lock:
            self.triggers[trigger] = self.triggers.get(trigger, 0) + 1

    def rollup_written(self) -> None:
        """A rollup was written."""
        with self._lock:
            self.rollup_wall_s = time.time()

    def rollup_failed(self) -> None:
        """A rollup could not be written."""
        with self._lock:
            self.failed_count += 1

    def findings_lost(self) -> None:
        """Findings or stacks of an hour were lost."""
        with self._lock:
            self.unexplained_count += 1

    def rollup_lost(self) -> None:
        """Rollups of an hour were given up."""
        with self._lock:
            self.lost_count += 1

# SPDX-License-Identifier: GPL-2.0-only
"""A second engine, at level `record`: CPU time of the parts of commands while it is attached."""

from collections import Counter
from dataclasses import replace
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import PHASES, STATES
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.recording.engine.ledger_layout import STATE_CELLS
from tlstax.collectors.recording.engine.metering import Meter, Reading
from tlstax.collectors.recording.engine.native import Engine, Options
from tlstax.probes.model import Level

PARTS: Final = ("record_read", "command", "record_write")
_ON_CPU: Final = STATES.index("on_cpu")


class ExactParts:
    """Loaded programs that are attached for a while, time and again."""

    def __init__(self, pid: int, plan: Plan, options: Options) -> None:
        """Load the programs, and attach the boundaries of connections and handshakes."""
        bare = replace(options, sample_hz=0, user_stacks=False, unwind_tables=False)
        self._engine = Engine(pid, plan, bare)
        self._meter = Meter(self._engine, plan.sites)
        self._cells: Counter[str] = Counter()
        self._reading: Reading
        try:
            self._engine.attach(dense=False)
        except BaseException:
            self._engine.close()
            raise

    def attach(self) -> None:
        """Attach what every command crosses."""
        self._meter.statistics(True)
        self._engine.attach_dense()

    def begin(self, now_ns: int) -> None:
        """What is told begins now."""
        self._cells, self._reading = self._settled(now_ns), self._meter.read()

    def told(self, window_id: int, now_ns: int) -> list[schema.CommandPart]:
        """The CPU times since begin()."""
        cells = self._settled(now_ns)
        return [
            schema.CommandPart(window_id, part, max(0, cells[part] - self._cells[part]))
            for part in PARTS
        ]

    @property
    def overhead_ns(self) -> float:
        """What its probes and programs have cost since begin()."""
        spent = self._meter.overhead(self._reading, self._meter.read(), Level.RECORD, 0)
        return spent.probes_ns + spent.scheduler_ns

    def detach(self) -> None:
        """Detach that, and forget the threads that have ended."""
        self._meter.statistics(False)
        self._engine.detach_dense()
        for slot in self._engine.maps.slots():
            if slot.exited:
                self._engine.maps.recycle(slot.index)

    def _settled(self, now_ns: int) -> Counter[str]:
        cells: Counter[str] = Counter()
        for slot in self._engine.maps.slots():
            settled = slot.settled(now_ns)
            for part in PARTS:
                cells[part] += settled[PHASES.index(part) * STATE_CELLS + _ON_CPU]
        return cells

    def close(self) -> None:
        """Detach and unload."""
        self._meter.close()
        self._engine.close()

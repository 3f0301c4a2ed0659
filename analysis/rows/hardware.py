# SPDX-License-Identifier: GPL-2.0-only
"""Instructions per cycle, and cycles per byte, of each phase, from what perf counted."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from tlstax.analysis.model.sources import CounterLine
from tlstax.analysis.rows.series import number
from tlstax.analysis.rows.tables import Tables

CYCLES, INSTRUCTIONS = "cycles_count", "instructions_count"
COUNTERS: Final = (CYCLES, INSTRUCTIONS)
_WIRE: Final = {"record_write": "Bytes_sent", "record_read": "Bytes_received"}
"""The server's own counters of what a phase sends or receives."""


def tabulate(tables: Tables) -> list[CounterLine]:
    """A line for each phase with cycles, most of them first."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in tables.metrics:
        if row.source == "perf" and row.name in COUNTERS:
            sums[row.object][row.name] += row.value
    lines = [
        _line(phase, counted, tables) for phase, counted in sums.items() if counted[CYCLES] >= 1
    ]
    return sorted(lines, key=lambda line: -line.cycles_count)


def _line(phase: str, counted: Mapping[str, float], tables: Tables) -> CounterLine:
    cycles = counted[CYCLES]
    instructions = counted.get(INSTRUCTIONS)
    size, source = _bytes(phase, tables)
    return CounterLine(
        phase,
        cycles,
        instructions,
        instructions / cycles if instructions is not None else None,
        size,
        cycles / size if size else None,
        source if size else "",
    )


def _bytes(phase: str, tables: Tables) -> tuple[float | None, str]:
    """Bytes of a phase: what its ciphers worked on, else what the server sent or received."""
    records = {
        row.primitive_id
        for row in tables.primitives
        if row.category == "cipher" and row.unit == "record"
    }
    counted = [
        row.size_bytes
        for row in tables.primitive_calls
        if row.primitive_id in records and row.phase == phase
    ]
    if sum(counted):
        return float(sum(counted)), "ciphers, by --functions"
    name = _WIRE.get(phase, "")
    readings = [
        value
        for row in sorted(tables.status, key=lambda row: row.time_ns)
        if row.run_id is None and row.name == name and (value := number(row.value)) is not None
    ]
    grown = readings[-1] - readings[0] if len(readings) > 1 else 0.0
    return (grown, f"the server's {name}") if grown > 0 else (None, "")

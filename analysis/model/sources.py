# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part five: series of the other sources, by time of the recording."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class SourceLine:
    """A source other than the engine, and its state."""

    name: Annotated[str, "procfs, iostat, status, perf, ..."]
    version: Annotated[str, "tool and version; '' if it did not start"]
    state: Annotated[str, "running, finished, failed or missing"]
    note: Annotated[str, "why it failed or is missing, and what to do; '' otherwise"]
    rows_count: Annotated[int, "rows that it recorded"]
    start_ns: Annotated[int, "start, from the beginning of the recording"]
    end_ns: Annotated[int, "end, from the beginning of the recording"]


@dataclass(frozen=True)
class SeriesLine:
    """One quantity over time; one that stayed at 0 has no line, see `SeriesPanel.still`."""

    label: Annotated[str, "what it is, for people"]
    counters: Annotated[
        list[str], "counters that it is computed from, with the names of the source"
    ]
    mean: Annotated[float | None, "mean over the known part of the panel's time"]
    lowest: Annotated[float | None, "lowest of the readings"]
    highest: Annotated[float | None, "highest of the readings"]
    values: Annotated[list[float | None], "one for each interval of the panel; null = unknown"]


@dataclass(frozen=True)
class SeriesPanel:
    """Quantities of one unit from one source, for one chart."""

    name: Annotated[str, "stable id, for example status/tls_handshakes or iostat/vda/bytes"]
    title: Annotated[str, "for people"]
    source: Annotated[str, "source that read it"]
    unit: Annotated[str, "per_second, bytes_per_second, cpus, threads, number, share or time_ns"]
    start_ns: Annotated[list[int], "start of each interval, from the beginning of the recording"]
    end_ns: Annotated[
        list[int], "end of each interval; if the next one starts later, nothing was read between"
    ]
    readings_per_interval: Annotated[int, "readings merged into one interval"]
    lines: Annotated[list[SeriesLine], "quantities that changed"]
    still: Annotated[list[str], "labels of quantities that stayed at 0"]


@dataclass(frozen=True)
class Reading:
    """One number of a source for its whole time, such as a map of a bpftrace program."""

    source: Annotated[str, "source that read it"]
    object: Annotated[str, "object that it describes"]
    name: Annotated[str, "what was read, with its unit as suffix"]
    value: Annotated[float, "sum over its time"]
    interval_ns: Annotated[int, "its time"]


@dataclass(frozen=True)
class CounterLine:
    """Hardware counters of a phase, from perf's samples."""

    phase: Annotated[str, "phase"]
    cycles_count: Annotated[float, "CPU cycles"]
    instructions_count: Annotated[float | None, "instructions; null = not counted"]
    instructions_per_cycle: Annotated[
        float | None, "quotient of the two; null if either is unknown"
    ]
    size_bytes: Annotated[float | None, "bytes that the phase worked on; null = unknown"]
    cycles_per_byte: Annotated[float | None, "quotient of the two; null if either is unknown"]
    size_source: Annotated[str, "where the bytes are from; '' = not known"]


@dataclass(frozen=True)
class Sources:
    """What other sources recorded, in addition to the engine or instead of it."""

    length_ns: Annotated[int, "length of the time axis, which begins with the first window"]
    lines: Annotated[list[SourceLine], "every source, in the order in which they were asked for"]
    panels: Annotated[list[SeriesPanel], "series, in the order in which they should be shown"]
    readings: Annotated[list[Reading], "numbers that are no series, largest first by source"]
    counters: Annotated[list[CounterLine], "most cycles first; empty without hardware counters"]
    notes: Annotated[list[str], "sentences about resets, gaps and omissions"]

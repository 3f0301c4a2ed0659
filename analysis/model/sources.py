# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part five: what other sources saw, on the recording's own time axis."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class SourceLine:
    """A source beside the engine, and how it fared."""

    name: Annotated[str, "procfs, iostat, status, perf, ..."]
    version: Annotated[str, "what answered, with its version; '' if nothing did"]
    state: Annotated[str, "running, finished, failed or missing"]
    note: Annotated[str, "why it failed or is missing, and what to do; '' otherwise"]
    rows_count: Annotated[int, "rows that it gave"]
    start_ns: Annotated[int, "start, from the beginning of the recording"]
    end_ns: Annotated[int, "end, likewise"]


@dataclass(frozen=True)
class SeriesLine:
    """One quantity over time; what never moved has no line, see `SeriesPanel.still`."""

    label: Annotated[str, "what it is, for people"]
    counters: Annotated[list[str], "what it is made of, as the source spells it"]
    mean: Annotated[float | None, "over all of the panel's time that is known"]
    lowest: Annotated[float | None, "lowest of the readings"]
    highest: Annotated[float | None, "highest of the readings"]
    values: Annotated[
        list[float | None], "one for each interval of the panel; null = not known there"
    ]


@dataclass(frozen=True)
class SeriesPanel:
    """Quantities of one unit from one source, as they belong into one small chart."""

    name: Annotated[str, "stable id, for example status/tls_handshakes or iostat/vda/bytes"]
    title: Annotated[str, "for people"]
    source: Annotated[str, "source that read it"]
    unit: Annotated[str, "per_second, bytes_per_second, cpus, threads, number, share or time_ns"]
    start_ns: Annotated[list[int], "start of each interval, from the beginning of the recording"]
    end_ns: Annotated[list[int], "its end; where the next one starts later, nothing was read"]
    readings_per_interval: Annotated[int, "readings that were put together into an interval"]
    lines: Annotated[list[SeriesLine], "what moved"]
    still: Annotated[list[str], "labels of what was read and stayed at 0"]


@dataclass(frozen=True)
class Reading:
    """A number that a source gave for its whole time, such as those of a bpftrace program."""

    source: Annotated[str, "source that read it"]
    object: Annotated[str, "what it is about"]
    name: Annotated[str, "what was read, with its unit as suffix"]
    value: Annotated[float, "sum over its time"]
    interval_ns: Annotated[int, "its time"]


@dataclass(frozen=True)
class CounterLine:
    """Hardware counters of a phase, by perf's samples: as good as their number."""

    phase: Annotated[str, "phase"]
    cycles_count: Annotated[float, "CPU cycles"]
    instructions_count: Annotated[float | None, "instructions; null = not counted"]
    instructions_per_cycle: Annotated[float | None, "of the two; null likewise"]
    size_bytes: Annotated[float | None, "bytes that the phase worked on; null = not known"]
    cycles_per_byte: Annotated[float | None, "of the two; null likewise"]
    size_source: Annotated[str, "where the bytes are from; '' = not known"]


@dataclass(frozen=True)
class Sources:
    """What was recorded beside the engine, or instead of it."""

    length_ns: Annotated[int, "length of the time axis, which begins with the first window"]
    lines: Annotated[list[SourceLine], "every source, in the order in which they were asked for"]
    panels: Annotated[list[SeriesPanel], "series, in the order in which they should be shown"]
    readings: Annotated[list[Reading], "numbers without a course, largest first by source"]
    counters: Annotated[list[CounterLine], "most cycles first; empty without hardware counters"]
    notes: Annotated[list[str], "resets, gaps and what is left out, in words"]

# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part six: how latencies were distributed over the time of a recording."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class HeatRow:
    """A row of the picture: a range of latencies; bounds are 1 to 4 steps to a power of two."""

    low_ns: Annotated[int, "from, inclusive"]
    high_ns: Annotated[int, "to, exclusive"]


@dataclass(frozen=True)
class HeatColumn:
    """A column of the picture: neighbouring windows of one run in which latencies were measured."""

    start_ns: Annotated[int, "start of its first window, from the beginning of the recording"]
    end_ns: Annotated[int, "end of its last window, from the beginning of the recording"]
    measured_ns: Annotated[
        int, "sum of its windows' lengths; less than end_ns - start_ns if there are gaps"
    ]
    count: Annotated[int, "values"]
    median_ns: Annotated[float | None, "median, as in latencies; null without values"]
    high_ns: Annotated[float | None, "99th percentile; null with fewer than 500 values"]
    longest_ns: Annotated[int | None, "upper bound of the highest bucket; null without values"]
    counts: Annotated[list[int], "values by row, as counted, not scaled"]


@dataclass(frozen=True)
class Heatmap:
    """Latencies of one phase over time. What was not measured has no column."""

    name: Annotated[str, "stable id: driver/scenario/arm/phase, or all/phase"]
    label: Annotated[str, "for people"]
    phase: Annotated[str, "command or handshake"]
    count: Annotated[int, "values in all columns"]
    length_ns: Annotated[int, "length of the recording, from its first window to its last"]
    most: Annotated[int, "highest count of a row in a column"]
    gap_count: Annotated[int, "windows whose level does not measure it: gaps in the picture"]
    rows: Annotated[list[HeatRow], "latency ranges, lowest first, contiguous"]
    columns: Annotated[list[HeatColumn], "in order of time"]

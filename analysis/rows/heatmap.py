# SPDX-License-Identifier: GPL-2.0-only
"""Latency over time: the histograms of the windows, as columns of a picture. Nothing is scaled."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tlstax.analysis.model.heatmap import HeatColumn, Heatmap, HeatRow
from tlstax.analysis.rows import coverage, latency
from tlstax.analysis.rows.latency import Buckets
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.schema import Latency, Window
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES, LEDGER_LEVELS

PHASES: Final = ("command", "handshake")
"""What a server does for its clients; the other phases are parts of it."""
_MOST_COLUMNS: Final = 60
_MOST_ROWS: Final = 32
_HIGH: Final = 0.99


def draw(parts: Sequence[Group], tables: Tables) -> list[Heatmap]:
    """The pictures of all groups whose latencies were measured in two windows or more."""
    made = [_picture(part, phase, tables) for part in parts for phase in PHASES]
    return [picture for picture in made if picture.count and len(picture.columns) > 1]


def _picture(part: Group, phase: str, tables: Tables) -> Heatmap:
    levels = coverage.HANDSHAKE_LEVELS if phase in HANDSHAKE_PHASES else LEDGER_LEVELS
    windows = sorted(
        (window for window in tables.windows if window.window_id in part.window_ids),
        key=lambda window: window.start_ns,
    )
    measured = [window for window in windows if window.level in levels]
    by_window: dict[int, list[Latency]] = defaultdict(list)
    for row in tables.latencies:
        if row.phase == phase and row.ended_count > 0:
            by_window[row.window_id].append(row)
    origin_ns = min((window.start_ns for window in tables.windows), default=0)
    end_ns = max((window.end_ns for window in tables.windows), default=0)
    found = (row for window in measured for row in by_window[window.window_id])
    rows = _rows({(row.low_ns + row.high_ns) // 2 for row in found})
    columns = [_column(group, by_window, rows, origin_ns) for group in _together(measured, windows)]
    return Heatmap(
        name=f"{part.name}/{phase}",
        label=f"{part.label}: {phase}",
        phase=phase,
        count=sum(column.count for column in columns),
        length_ns=end_ns - origin_ns,
        most=max((count for column in columns for count in column.counts), default=0),
        gap_count=len(windows) - len(measured),
        rows=rows,
        columns=columns,
    )


def _together(measured: Sequence[Window], windows: Sequence[Window]) -> list[list[Window]]:
    """Neighbours of one run put together, where there are more than the picture has room for."""
    if not measured:
        return []
    most_ns = 0
    if len(measured) > _MOST_COLUMNS:
        most_ns = (windows[-1].end_ns - windows[0].start_ns) // _MOST_COLUMNS
    groups = [[measured[0]]]
    for window in measured[1:]:
        first = groups[-1][0]
        if window.run_id == first.run_id and window.end_ns - first.start_ns <= most_ns:
            groups[-1].append(window)
        else:
            groups.append([window])
    return groups


def _column(
    windows: Sequence[Window],
    by_window: dict[int, list[Latency]],
    rows: Sequence[HeatRow],
    origin_ns: int,
) -> HeatColumn:
    found = [row for window in windows for row in by_window[window.window_id]]
    merged = latency.merge(found, {window.window_id for window in windows})
    buckets: Buckets = next(iter(merged.values()), {})
    count = sum(buckets.values())
    has_high = _HIGH in latency.wanted_quantiles(count)
    counts = [0] * len(rows)
    lows = [row.low_ns for row in rows]
    for (low_ns, high_ns), number in buckets.items():
        middle_ns = max(1, (low_ns + high_ns) // 2)
        counts[bisect_right(lows, middle_ns) - 1] += number
    return HeatColumn(
        start_ns=windows[0].start_ns - origin_ns,
        end_ns=windows[-1].end_ns - origin_ns,
        measured_ns=sum(window.end_ns - window.start_ns for window in windows),
        count=count,
        median_ns=latency.quantile(buckets, 0.5).value_ns if count else None,
        high_ns=latency.quantile(buckets, _HIGH).value_ns if has_high else None,
        longest_ns=max(high for _, high in buckets) if count else None,
        counts=counts,
    )


def _rows(values_ns: Iterable[int]) -> list[HeatRow]:
    """Ranges that hold the values, as fine as the picture has room for.

    Their bounds are bounds of the capture's own buckets, of which a power of two has 32.
    """
    values = sorted(max(1, value) for value in values_ns)
    if not values:
        return []
    for steps in (4, 2, 1):
        first, last = (_step(value, steps) for value in (values[0], values[-1]))
        if last - first < _MOST_ROWS:
            break
    return [HeatRow(_bound(at, steps), _bound(at + 1, steps)) for at in range(first, last + 1)]


def _step(value_ns: int, steps: int) -> int:
    """Which range a value lies in: `steps` of equal width to each power of two."""
    power = value_ns.bit_length() - 1
    return power * steps + (value_ns - (1 << power)) * steps // (1 << power)


def _bound(at: int, steps: int) -> int:
    """Where a range begins; whole numbers, so that below 4 ns ranges can be empty."""
    power, part = divmod(at, steps)
    return (1 << power) + -(-(part << power) // steps)

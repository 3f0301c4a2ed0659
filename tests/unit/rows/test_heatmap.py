# SPDX-License-Identifier: GPL-2.0-only
"""Latency over time: every value is in one cell, and what was not measured is a gap."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax.analysis.model.heatmap import Heatmap
from tlstax.analysis.rows import heatmap, latency
from tlstax.analysis.rows.tables import Tables, groups
from tlstax.collectors.capture.schema import Latency, Window

SECOND = 10**9


def picture(windows: list[Window], rows: list[Latency]) -> list[Heatmap]:
    tables = Tables(windows=windows, latencies=rows)
    return heatmap.draw(groups(tables), tables)


def window(number: int, level: str = "full") -> Window:
    return Window(number, None, (4 + number) * SECOND, (5 + number) * SECOND, level=level)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10**13), min_size=1, max_size=20), min_size=2, max_size=90))
def test_every_value_is_in_the_cell_of_its_latency(values: list[list[int]]) -> None:
    rows = [
        Latency(number, "command", low, high, count)
        for number, of_window in enumerate(values, 1)
        for (low, high), count in latency.bucketize(of_window).items()
    ]
    [made] = picture([window(number) for number in range(1, len(values) + 1)], rows)
    assert made.count == sum(column.count for column in made.columns) == sum(map(len, values))
    assert len(made.columns) <= 61
    assert len(made.rows) <= 64
    for below, above in zip(made.rows, made.rows[1:], strict=False):
        assert below.high_ns == above.low_ns
    for column in made.columns:
        assert sum(column.counts) == column.count
        assert column.measured_ns == column.end_ns - column.start_ns
    for at, row in enumerate(made.rows):
        within = [v for vs in values for v in vs if row.low_ns <= max(1, v) < row.high_ns]
        assert sum(column.counts[at] for column in made.columns) == len(within)


def test_windows_without_the_level_are_gaps() -> None:
    windows = [window(1), window(2, "samples"), window(3, "handshake"), window(4)]
    rows = [
        Latency(number, phase, 1024, 1056, number)
        for number in range(1, 5)
        for phase in ("command", "handshake")
    ]
    command, handshake = picture(windows, rows)
    assert (command.phase, handshake.phase) == ("command", "handshake")
    assert [column.start_ns for column in command.columns] == [0, 3 * SECOND]
    assert [column.count for column in command.columns] == [1, 4]
    assert [column.count for column in handshake.columns] == [1, 3, 4]
    assert (command.gap_count, handshake.gap_count) == (2, 1)
    assert command.length_ns == 4 * SECOND
    assert [(row.low_ns, row.high_ns) for row in command.rows] == [(1024, 1280)]


def test_columns_say_what_latencies_say() -> None:
    rows = [Latency(1, "command", 1024, 1056, 990), Latency(1, "command", 4096, 4224, 10)]
    [made] = picture([window(1), window(2)], rows)
    busy, quiet = made.columns
    assert busy.median_ns == pytest.approx(1040, abs=1)
    assert busy.high_ns == pytest.approx(1056, abs=1)
    assert busy.longest_ns == 4224
    assert made.most == 990
    assert (quiet.count, quiet.median_ns, quiet.high_ns, quiet.longest_ns) == (0, None, None, None)


def test_one_window_has_no_course_of_time() -> None:
    assert picture([window(1)], [Latency(1, "command", 1024, 1056, 3)]) == []
    assert picture([window(1), window(2)], []) == []

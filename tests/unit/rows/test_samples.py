# SPDX-License-Identifier: GPL-2.0-only
"""Samples by column say what the rows say."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.rows.samples import Samples, columns_of
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import SampleStack
from tlstax.collectors.capture.writer import write_whole

ROWS = st.lists(
    st.builds(
        SampleStack,
        st.integers(1, 4),
        st.sampled_from(["handshake", "command"]),
        st.sampled_from([-1, 45]),
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([None, 9]),
        st.integers(0, 5),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(rows=ROWS, window_ids=st.sets(st.integers(1, 5)))
def test_sums_are_those_of_the_rows(rows: list[SampleStack], window_ids: set[int]) -> None:
    made = columns_of(rows)
    assert list(made) == rows == made[:]
    assert made.total == sum(row.sample_count for row in rows)
    chosen = [row for row in rows if row.window_id in window_ids]
    assert list(made.of_windows(window_ids)) == chosen
    places: Counter[object] = Counter()
    windows: Counter[object] = Counter()
    labels = {place: 7 + (place[0] == "command") for place in made.places if place[1] == -1}
    for row in chosen:
        places[row[1:5]] += row.sample_count
    for row in rows:
        if row[1:5] in labels:
            windows[row.window_id, labels[row[1:5]]] += row.sample_count
    assert made.by_place(window_ids) == +places
    found = made.by_window(labels)
    assert {(w, label): n for w, mine in found.items() for label, n in mine.items()} == +windows


def loaded(path: Path, rows: list[SampleStack]) -> Samples:
    write_whole(path, rows)
    with CaptureReader.open(path) as reader:
        return Samples.load(reader)


def test_they_come_from_a_capture(tmp_path: Path) -> None:
    rows = [SampleStack(number, "command", -1, number % 7, None, 2) for number in range(5000)]
    assert list(loaded(tmp_path / "x", rows)) == rows
    assert len(loaded(tmp_path / "empty", [])) == 0


def test_counts_that_no_recorder_writes(tmp_path: Path) -> None:
    """Sums beyond 64 bits would come out negative, and a share of them as anything."""
    with pytest.raises(TlstaxError) as refused:
        loaded(tmp_path / "x", [SampleStack(1, "command", -1, n, None, 1 << 62) for n in range(3)])
    assert refused.value.exit_code == ExitCode.CAPTURE

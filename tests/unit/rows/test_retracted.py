# SPDX-License-Identifier: GPL-2.0-only
"""Commands that were counted, and turned out to go on: the window that had counted them has not."""

from hypothesis import given
from hypothesis import strategies as st

from tlstax.analysis.rows.edges.retracted import settle_counts, settle_latencies
from tlstax.collectors.capture.schema import Latency, PhaseCount


def counts(*ended: int) -> list[PhaseCount]:
    return [PhaseCount(window, "command", count) for window, count in enumerate(ended, 1)]


def test_what_is_taken_back_is_missing_where_it_was_counted_last() -> None:
    settled = settle_counts(counts(5, 1, 2, -3, 4))
    assert settled == counts(5, 0, 0, 0, 4)[:1] + counts(5, 0, 0, 0, 4)[4:]


def test_other_phases_and_buckets_keep_theirs() -> None:
    short, long = (1000, 1040), (2_000_000, 2_080_000)
    rows = [
        Latency(1, "command", *short, 3),
        Latency(1, "record_read", *long, 3),
        Latency(1, "command", *long, 1),
        Latency(2, "command", *long, -1),
    ]
    assert settle_latencies(rows) == rows[:2]


def test_what_another_capture_counted_is_not_below_0() -> None:
    """A recording may go on in the next capture (`tlstax watch`)."""
    assert settle_counts(counts(-2, 1)) == counts(0, 1)[1:]


@given(st.lists(st.integers(-5, 5)))
def test_nothing_is_below_0_and_the_sum_stays_if_it_can(ended: list[int]) -> None:
    settled = settle_counts(counts(*ended))
    assert all(row.ended_count >= 0 for row in settled)
    so_far = [sum(ended[: index + 1]) for index in range(len(ended))]
    if min(so_far, default=0) >= 0:
        assert sum(row.ended_count for row in settled) == sum(ended)

# SPDX-License-Identifier: GPL-2.0-only
"""Commands that were counted, and turned out to go on: the window that had counted them has not."""

from hypothesis import given
from hypothesis import strategies as st

from tlstax.analysis.rows.edges.retracted import Retractions, settle_counts, settle_latencies
from tlstax.collectors.capture.schema import Latency, PhaseCount, Window

SHORT, LONG = (1000, 1040), (2_000_000, 2_080_000)


def counts(*ended: int) -> list[PhaseCount]:
    return [PhaseCount(window, "command", count) for window, count in enumerate(ended, 1)]


def windows(*targets: int) -> list[Window]:
    return [Window(number, None, 0, 1, target) for number, target in enumerate(targets, 1)]


def test_what_is_taken_back_is_missing_where_it_was_counted_last() -> None:
    settled = settle_counts(counts(5, 1, 2, -3, 4), windows(*[1] * 5))
    assert settled == counts(5, 0, 0, 0, 4)[:1] + counts(5, 0, 0, 0, 4)[4:]


def test_other_phases_and_buckets_keep_theirs() -> None:
    rows = [
        Latency(1, "command", *SHORT, 3),
        Latency(1, "record_read", *LONG, 3),
        Latency(1, "command", *LONG, 1),
        Latency(2, "command", *LONG, -1),
    ]
    assert settle_latencies(rows, windows(1, 1)) == rows[:2]


def test_other_targets_keep_theirs() -> None:
    """A server and its client, each with a window of the same time: one of them goes on."""
    of = windows(1, 2, 1, 2)
    settled = settle_counts(counts(3, 5, -1, 4), of)
    assert [row.ended_count for row in settled] == [2, 5, 4]
    rows = [Latency(window, "command", *LONG, count) for window, count in ((1, 2), (2, 2), (3, -1))]
    assert [row.ended_count for row in settle_latencies(rows, of)] == [1, 2]


def test_what_another_capture_counted_is_not_below_0() -> None:
    """A recording may go on in the next capture (`tlstax watch`)."""
    assert settle_counts(counts(-2, 1), windows(1, 1)) == counts(0, 1)[1:]


@given(st.lists(st.integers(-5, 5)))
def test_nothing_is_below_0_and_the_sum_stays_if_it_can(ended: list[int]) -> None:
    settled = settle_counts(counts(*ended), windows(*[1] * len(ended)))
    assert all(row.ended_count >= 0 for row in settled)
    so_far = [sum(ended[: index + 1]) for index in range(len(ended))]
    if min(so_far, default=0) >= 0:
        assert sum(row.ended_count for row in settled) == sum(ended)


def test_who_sees_one_window_after_another_never_counts_back() -> None:
    """A total of a metric that falls is a restart, to who reads it."""
    settle = Retractions().settle
    assert settle(counts(2), [Latency(1, "command", *SHORT, 2)])[0] == counts(2)
    # It went on, and has ended: in another bucket.
    rows = [Latency(2, "command", *SHORT, -1), Latency(2, "command", *LONG, 1)]
    of_phases, buckets = settle([PhaseCount(2, "command", 0)], rows)
    assert [row.ended_count for row in of_phases] == [1]
    assert buckets == rows[1:]
    of_phases, buckets = settle([PhaseCount(3, "command", 3)], [Latency(3, "command", *SHORT, 3)])
    assert [row.ended_count for row in of_phases] == [2]
    assert [row.ended_count for row in buckets] == [2]


@given(st.lists(st.tuples(st.integers(-4, 5), st.integers(-4, 5))))
def test_totals_of_windows_grow_and_their_sum_stays_if_it_can(
    ended: list[tuple[int, int]],
) -> None:
    retractions = Retractions()
    sums = {"counts": 0, "buckets": 0}
    for window, (short, long) in enumerate([*ended, (1000, 1000)], 1):
        of_phases, buckets = retractions.settle(
            [PhaseCount(window, "command", short + long)],
            [Latency(window, "command", *SHORT, short), Latency(window, "command", *LONG, long)],
        )
        (of_phase,) = of_phases
        assert of_phase.ended_count == sum(row.ended_count for row in buckets)
        assert all(row.ended_count > 0 for row in buckets)
        sums["counts"] += of_phase.ended_count
        sums["buckets"] += sum(row.ended_count for row in buckets)
    assert sums["counts"] == sums["buckets"] == 2000 + sum(map(sum, ended))

# SPDX-License-Identifier: GPL-2.0-only
"""What was measured part of the time is scaled to the whole of it, and says so."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tlstax.analysis.document.explain import explain
from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS, cover, intervals, scale, time_by_level
from tlstax.analysis.rows.ledger import by_window
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Effect, Handshake, Ledger, PhaseCount, System, Window
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

MS = 1_000_000


def windows(*spans: tuple[str, int], run_id: int | None = None) -> list[Window]:
    """Windows of these levels and lengths in ms, one after another."""
    rows = []
    start_ns = 0
    for number, (level, length_ms) in enumerate(spans, 1):
        end_ns = start_ns + length_ms * MS
        rows.append(Window(number, run_id, start_ns, end_ns, 1, level))
        start_ns = end_ns
    return rows


def test_all_the_time_is_no_estimate() -> None:
    seen = cover(windows(("full", 1000), ("record", 1000)), LEDGER_LEVELS)
    assert seen.is_whole
    assert seen.text == ""
    assert seen.weights == {1: 1.0, 2: 1.0}


def test_a_window_stands_for_the_time_that_is_nearest_to_it() -> None:
    rows = windows(("full", 100), ("handshake", 400), ("full", 100), ("handshake", 900))
    seen = cover(rows, LEDGER_LEVELS)
    assert seen.stands_for_ns == {1: 300 * MS, 3: 1200 * MS}
    assert seen.text == "estimate: measured in 133 of 1,000 ms, 2 windows"
    assert cover(rows, HANDSHAKE_LEVELS).is_whole


def test_a_fragment_stands_for_no_more_than_the_window_before_it() -> None:
    """A budget cuts some windows short; alone such a one would stand for all around it."""
    rows = windows(("full", 1000), ("none", 9000), ("full", 20), ("none", 9000), ("full", 1000))
    seen = cover(rows, LEDGER_LEVELS)
    assert seen.weights[3] == seen.weights[1] == pytest.approx(14_520 / 1020)
    assert seen.stands_for_ns[5] == 5500 * MS
    first = windows(("full", 20), ("none", 980), ("full", 1000))
    assert cover(first, LEDGER_LEVELS).weights == {1: 2000 / 1020, 3: 2000 / 1020}


def test_a_window_stands_for_no_other_run() -> None:
    first = windows(("full", 100), ("none", 100), run_id=1)
    second = [
        Window(3, 2, 200 * MS, 500 * MS, 1, "none"),
        Window(4, 2, 500 * MS, 600 * MS, 1, "full"),
    ]
    assert cover(first + second, LEDGER_LEVELS).stands_for_ns == {1: 200 * MS, 4: 400 * MS}


def test_nothing_measured_is_said() -> None:
    assert cover(windows(("sample", 1000)), LEDGER_LEVELS).text == "not measured"


SPANS = st.lists(
    st.tuples(st.sampled_from(["full", "handshake", "none"]), st.integers(1, 2000)), max_size=20
)


@given(SPANS)
@example([("full", 54), ("full", 613)])  # a fragment and nothing between
def test_the_windows_stand_for_all_of_the_time(spans: list[tuple[str, int]]) -> None:
    rows = windows(*spans)
    seen = cover(rows, LEDGER_LEVELS)
    if seen.window_ids:
        assert sum(seen.stands_for_ns.values()) == pytest.approx(seen.whole_ns)
    assert all(weight >= 1 for weight in seen.weights.values())


def budgeted(count: int, handshake_level: str = "handshake") -> Tables:
    """`count` cycles of 100 dense and 900 light milliseconds, one busy thread."""
    rows = windows(*[("full", 100), (handshake_level, 900)] * count)
    dense = [row for row in rows if row.level == "full"]
    ledger = [
        Ledger(row.window_id, 1, "command", "on_cpu", (50 + 10 * (number % 3)) * MS)
        for number, row in enumerate(dense)
    ]
    return Tables(
        windows=rows,
        ledger=ledger,
        phase_counts=[PhaseCount(row.window_id, "command", 10) for row in dense],
        system=[System(row.window_id, 0, 0, 0, 0, 0, 1 * MS, 0) for row in rows],
        effects=[Effect(row.window_id, 600 * MS, 2 * MS, 1 * MS, None) for row in rows],
        meta={"budget_share": "0.01", "predicted_share": "0.002"},
    )


def test_totals_are_scaled_with_an_interval_and_marked() -> None:
    document = explain(budgeted(12))
    bar = document.ledgers[0]
    assert bar.estimate == "estimate: measured in 100 of 1,000 ms, 12 windows"
    assert bar.total_ns == pytest.approx(12 * 600 * MS, rel=0.02)
    segment = bar.segments[0]
    assert segment.low_ns is not None
    assert segment.high_ns is not None
    assert segment.low_ns < segment.time_ns < segment.high_ns
    assert segment.unit_count == 7, "twelve windows are too few for an interval"
    assert segment.high_ns - segment.low_ns < 0.4 * segment.time_ns
    assert "estimate" in document.answer.sentence
    assert document.compositions[0].estimate == bar.estimate
    assert document.capture.levels == {"full": 1200 * MS, "handshake": 10800 * MS}


def test_counts_are_scaled() -> None:
    scaled = scale(budgeted(12))
    assert sum(row.ended_count for row in scaled.phase_counts) == pytest.approx(1200, rel=0.01)


def test_windows_of_runs_are_no_independent_blocks() -> None:
    tables = budgeted(60)
    undriven = intervals(by_window(tables.ledger), cover(tables.windows, LEDGER_LEVELS))
    assert {one.unit_count for one in undriven.values()} == {8}
    driven = [row._replace(run_id=1) for row in tables.windows]
    seen = cover(driven, LEDGER_LEVELS)
    found = intervals(by_window(tables.ledger), seen)
    assert {one.unit_count for one in found.values()} == {7}


def test_a_few_windows_give_no_interval() -> None:
    segment = explain(budgeted(3)).ledgers[0].segments[0]
    assert segment.low_ns is None


def test_no_ledger_is_not_zero() -> None:
    rows = windows(("sample", 1000))
    document = explain(Tables(windows=rows))
    assert document.ledgers[0].total_ns is None
    assert document.ledgers[0].idle_ns is None
    assert document.capture.handshake_count is None
    assert "not measured" in document.answer.sentence


def handshake(window_id: int, on_cpu_ns: int) -> Handshake:
    waits = 0 if on_cpu_ns >= 0 else -1
    return Handshake(
        window_id * 1000, window_id, 5, 0, 10 * MS, on_cpu_ns, waits, waits, waits,
        1 * MS, 0, 0, 0, 0, 1, 1, "success", "TLSv1.3", "unknown", "unknown", None,
    )  # fmt: skip


def test_handshakes_seen_all_the_time_are_exact() -> None:
    tables = budgeted(2)
    tables.handshakes = [handshake(1, 10 * MS), handshake(2, -1)]
    table = explain(tables).handshakes[0]
    assert table.estimate == ""
    assert table.estimated_count is None
    assert table.count == 2
    assert table.parts_count == 1


def test_waits_that_were_not_measured_are_no_part() -> None:
    tables = budgeted(2)
    tables.handshakes = [handshake(2, -1)]
    parts = {part.name: part.mean.value_ns for part in explain(tables).handshakes[0].parts}
    assert parts == {"sign": 1 * MS, "rest": 9 * MS}


def test_handshakes_seen_part_of_the_time_are_estimated() -> None:
    tables = budgeted(12, handshake_level="sample")
    tables.handshakes = [handshake(row.window_id, -1) for row in tables.windows[::2]] * 2
    table = explain(tables).handshakes[0]
    assert table.estimated_count is not None
    assert table.estimated_count.value == pytest.approx(240)
    assert "measured in 100 of 1,000 ms" in table.estimate


def test_predicted_and_observed_stand_side_by_side() -> None:
    health = explain(budgeted(4)).health
    effects = {line.name: line for line in health.observer.effects}
    assert effects["probe"].observed_share == pytest.approx(2 / 600)
    assert effects["sample"].observed_share is None
    assert effects["all"].predicted_share == 0.002
    assert effects["all"].observed_share == pytest.approx(4 / 600)
    assert any("twice" in text for text in health.warnings)
    assert not any("budget" in text for text in health.warnings)


def test_a_cost_over_the_budget_is_a_warning() -> None:
    tables = budgeted(4)
    tables.meta["budget_share"] = "0.005"
    assert any("above the budget" in text for text in explain(tables).health.warnings)


def test_many_windows_are_blocks() -> None:
    tables = budgeted(250)
    seen = cover(tables.windows, LEDGER_LEVELS)
    amounts: dict[int, dict[tuple[str, str], float]] = {
        row.window_id: {("command", "on_cpu"): float(row.time_ns)} for row in tables.ledger
    }
    found = intervals(amounts, seen)["command", "on_cpu"]
    assert found.unit_count == 25
    assert found.low is not None
    assert found.high is not None
    assert found.low < 250 * 600 * MS < found.high
    assert found.high - found.low < 0.1 * found.value


def test_times_by_level() -> None:
    assert time_by_level(windows(("none", 5), ("full", 1))) == {"full": 1 * MS, "none": 5 * MS}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_windows_with_a_ledger_have_no_interval(count: int) -> None:
    """What bcc recorded has none at all."""
    spans = [("record", 5), ("none", 100)] * count or [("none", 100)]
    seen = cover(windows(*spans), LEDGER_LEVELS)
    assert len(seen.window_ids) == count
    amounts = {one: {("command", "on_cpu"): 3.0} for one in (*seen.window_ids, 99)}
    assert intervals(amounts, seen) == {}

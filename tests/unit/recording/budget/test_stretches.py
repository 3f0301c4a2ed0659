# SPDX-License-Identifier: GPL-2.0-only
"""How often calibration stretches are taken, and that a budget has room for them (pace.c)."""

import re
from pathlib import Path

import pytest

from tlstax.collectors.recording.by_recorder.stretch_times import STRETCH_MS, interval_s
from tlstax.probes.model import Level
from tlstax.tests.unit.recording.budget.budget_in_c import NS_PER_S, Overhead, Pace, Span, load_of

MS = 1_000_000
CPUS = 1.2
CUT_NS = 1.0 * MS
FLOW = 0.02
"""Overhead of level flow, per CPU time of the server."""
RECORD = 0.2
"""What the probes of a stretch add to that."""
UNKNOWN = -1.0


@pytest.mark.parametrize(
    ("duration_s", "mean_s"), [(None, 6.0), (10.0, 2.0), (84.0, 6.0), (3600.0, 12.0)]
)
def test_recordings_of_some_length_have_enough_of_them(
    duration_s: float | None, mean_s: float
) -> None:
    assert interval_s(duration_s) == mean_s


def test_the_recorder_s_stretches_are_as_long() -> None:
    header = Path(__file__).resolve().parents[4] / "collectors/recorder/stretches.h"
    assert re.findall(r"STRETCH_NS \((\d+) \* NS_PER_MS\)", header.read_text()) == [str(STRETCH_MS)]


def window(length_ns: int, extra: float = 0.0) -> Span:
    """A window at level flow, with the probes of a stretch or without."""
    cpu_ns = int(length_ns * CPUS)
    return Span(length_ns, cpu_ns, Overhead(cpu_ns * extra, cpu_ns * FLOW, 0.0, CUT_NS))


def taken(share: float, seconds: float, mean_s: float) -> tuple[Pace, int]:
    """Record with stretches, each as soon as it is due and the account has what the last cost."""
    pace = Pace(share, Level.FLOW, NS_PER_S)
    load = load_of((0.0,) * len(Level), cpus=CPUS, scheduler=FLOW, cut_ns=CUT_NS)
    assert pace.begin(load, window(STRETCH_MS * MS))
    pace.first()
    count, cost_ns, now_s, due_s = 0, UNKNOWN, 0.0, mean_s
    while now_s < seconds:
        pace.ended(window(NS_PER_S), CUT_NS, UNKNOWN, 0.0)
        now_s += 1
        if now_s >= due_s and pace.affords(cost_ns):
            stretch = window(STRETCH_MS * MS, RECORD)
            assert stretch.spent.total_ns <= pace.balance_ns or cost_ns == UNKNOWN
            pace.ended(stretch, CUT_NS, UNKNOWN, 0.0)
            cost_ns = stretch.spent.total_ns
            count += 1
            now_s += STRETCH_MS / 1000
            due_s = now_s + mean_s
    return pace, count


def test_a_budget_with_room_has_a_few_a_minute() -> None:
    pace, count = taken(0.05, 120, 6.0)
    assert count >= 15
    assert pace.spent_share <= 0.05


def test_a_tight_budget_has_fewer_and_holds() -> None:
    wide, tight = taken(0.05, 120, 2.0)[1], taken(0.0264, 120, 2.0)
    assert 0 < tight[1] < wide / 2
    assert tight[0].spent_share <= 0.0264


def test_a_budget_that_level_flow_uses_up_has_none() -> None:
    pace, count = taken(0.0235, 60, 2.0)
    if pace.choice is not None and pace.choice.is_continuous:
        assert pace.spent_share <= 0.0235 * 1.02
    assert count <= 2


def test_dense_windows_have_no_room_for_them() -> None:
    pace = Pace(0.01, Level.FLOW, NS_PER_S)
    load = load_of((0.0,) * len(Level), cpus=CPUS, scheduler=FLOW, cut_ns=CUT_NS)
    assert pace.begin(load, window(STRETCH_MS * MS))
    assert pace.choice is not None
    assert not pace.choice.is_continuous
    pace.state.account.balance_ns = 1e12
    assert not pace.affords(0.0)

# SPDX-License-Identifier: GPL-2.0-only
"""The course of a recording under a budget, against servers that are arithmetic."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax import TlstaxError
from tlstax.collectors.budget import NS_PER_S, Load, Spent, has_ledger
from tlstax.collectors.metering import Bill
from tlstax.collectors.pacing import Pace
from tlstax.probes.definitions import Level

MS = 1_000_000
SECOND = NS_PER_S
CUT_NS, TURN_NS = 2.0 * MS, 2.0 * MS
PRICES = (0.0, 0.005, 0.08, 0.04)
SCHEDULER = 0.06
SAMPLES = 0.0005


def bill(
    level: Level | None,
    span_ns: int,
    cpus: float,
    dearer: float = 1.0,
    own_ns: float = CUT_NS + TURN_NS,
) -> Bill:
    """What a span costs on a server that uses `cpus`, and the collector."""
    cpu_ns = int(span_ns * cpus)
    on = -1 if level is None else int(level)
    by_level = tuple(
        cpu_ns * price * dearer if one <= on else 0.0
        for one, price in zip(Level, PRICES, strict=True)
    )
    spent = Spent(
        sum(by_level),
        cpu_ns * SCHEDULER if level is not None and has_ledger(level) else 0.0,
        span_ns * SAMPLES if level is not None else 0.0,
        own_ns,
    )
    return Bill(span_ns, cpu_ns, spent, by_level)


def begun(share: float, cpus: float = 1.2) -> Pace:
    """A pace after its trial."""
    pace = Pace(share, Level.RECORD, SECOND)
    load = Load(cpus, PRICES, SCHEDULER, SAMPLES, CUT_NS, TURN_NS)
    pace.begin(load, bill(Level.RECORD, 200 * MS, cpus))
    return pace


def drive(
    pace: Pace, seconds: float, cpus: Callable[[float], float], dearer: float = 1.0
) -> list[tuple[Level | None, float]]:
    """Follow the pace; level and length in seconds of each window."""
    course = []
    now_s = 0.0
    step = pace.first()
    last: Level | None = Level.RECORD
    while now_s < seconds:
        length_ns = step.length_ns
        used = cpus(now_s)
        # The watchdog: at each look the window may end.
        for looked_ns in range(step.watch_ns, length_ns, step.watch_ns):
            if pace.overspends(bill(step.level, looked_ns, used, dearer, own_ns=0.0)):
                length_ns = looked_ns
                break
        course.append((step.level, length_ns / NS_PER_S))
        now_s += length_ns / NS_PER_S
        own_ns = CUT_NS + (TURN_NS if step.level != last else 0.0)
        last = step.level
        one = bill(step.level, length_ns, used, dearer, own_ns)
        step = pace.ended(one, CUT_NS, TURN_NS, 0.0001)
    return course


def dense_share(course: list[tuple[Level | None, float]]) -> float:
    dense = sum(length for level, length in course if level == Level.RECORD)
    return dense / sum(length for _, length in course)


def test_dense_windows_alternate_with_light_ones_and_the_budget_holds() -> None:
    pace = begun(0.01)
    course = drive(pace, 120, lambda _: 1.2)
    levels = [level for level, _ in course]
    assert levels.count(Level.RECORD) > 10
    assert not any(a == b == Level.RECORD for a, b in itertools.pairwise(levels))
    assert pace.account.spent_share is not None
    assert 0.006 < pace.account.spent_share <= 0.0105
    assert "windows of" in pace.words()


def test_a_rise_of_the_load_makes_it_back_off() -> None:
    pace = begun(0.02, cpus=0.002)
    assert pace.choice is not None
    quiet = drive(pace, 60, lambda _: 0.002)
    assert dense_share(quiet) > 0.5
    loud = drive(pace, 120, lambda _: 2.0)
    assert dense_share(loud) < 0.1
    assert pace.account.spent_share is not None
    assert pace.account.spent_share <= 0.025


def test_a_window_that_turns_out_dear_is_ended_early() -> None:
    pace = begun(0.01)
    course = drive(pace, 60, lambda _: 1.2, dearer=10.0)
    first = next(length for level, length in course if level == Level.RECORD)
    assert pace.choice is not None
    assert first <= 0.05


def test_it_takes_more_once_the_load_is_gone() -> None:
    pace = begun(0.02, cpus=1.5)
    drive(pace, 30, lambda _: 1.5)
    assert dense_share(drive(pace, 120, lambda _: 0.002)) > 0.5


def test_nothing_is_on_while_nothing_fits() -> None:
    pace = begun(0.01, cpus=0.6)
    course = drive(pace, 60, lambda _: 0.0, dearer=1.0)
    pace.choice = None
    assert course
    assert "nothing fits" in pace.words()


def test_light_time_varies() -> None:
    course = drive(begun(0.02), 120, lambda _: 1.2)
    lengths = {round(length, 3) for level, length in course if level == Level.HANDSHAKE}
    assert len(lengths) > 5


def test_a_hopeless_budget_is_refused_after_the_trial() -> None:
    pace = Pace(0.001, Level.RECORD, SECOND)
    load = Load(0.5, PRICES, SCHEDULER, 0.01, CUT_NS, TURN_NS)
    with pytest.raises(TlstaxError, match="nothing can be recorded"):
        pace.begin(load, bill(Level.RECORD, 200 * MS, 0.5))


@given(
    st.floats(0.005, 0.3),
    st.lists(st.floats(0.0, 4.0), min_size=1, max_size=6),
    st.floats(0.5, 4.0),
)
def test_whatever_the_load_does_the_budget_holds(
    share: float, loads: list[float], dearer: float
) -> None:
    pace = begun(share, cpus=1.0)
    trial_ns = pace.account.spent.total_ns
    drive(pace, 300, lambda now_s: loads[int(now_s // 50) % len(loads)], dearer)
    account = pace.account
    # The trial is a debt from the start; a look may come after a second's surprise at full price.
    surprise_ns = 2.5 * SECOND * max(loads) * dearer * (sum(PRICES) + SCHEDULER)
    assert account.spent.total_ns <= account.earned_ns + trial_ns + surprise_ns

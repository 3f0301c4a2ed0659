# SPDX-License-Identifier: GPL-2.0-only
"""The windows of a recording under a budget (pace.c), against servers that are arithmetic."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax.probes.model import Level
from tlstax.tests.unit.recording.budget.budget_in_c import (
    NONE,
    NS_PER_S,
    Overhead,
    Pace,
    Span,
    load_of,
)

MS = 1_000_000
SECOND = NS_PER_S
CUT_NS, TURN_NS = 2.0 * MS, 2.0 * MS
PRICES = (0.0, 0.003, 0.002, 0.0, 0.0, 0.08, 0.04)
SCHEDULER = 0.06
SAMPLES = 0.0005


def overhead(
    level: int,
    span_ns: int,
    cpus: float,
    cost_factor: float = 1.0,
    own_ns: float = CUT_NS + TURN_NS,
) -> Span:
    """What a span costs on a server that uses `cpus`, and the recorder."""
    cpu_ns = int(span_ns * cpus)
    by_level = tuple(
        cpu_ns * price * cost_factor if one <= level else 0.0
        for one, price in zip(Level, PRICES, strict=True)
    )
    spent = Overhead(
        sum(by_level),
        cpu_ns * SCHEDULER if level >= Level.FLOW else 0.0,
        span_ns * SAMPLES if level != NONE else 0.0,
        own_ns,
    )
    return Span(span_ns, cpu_ns, spent, by_level)


def begun(share: float, cpus: float = 1.2) -> Pace:
    """A pace after its trial."""
    pace = Pace(share, Level.RECORD, SECOND)
    load = load_of(
        PRICES, cpus=cpus, scheduler=SCHEDULER, samples=SAMPLES, cut_ns=CUT_NS, turn_ns=TURN_NS
    )
    assert pace.begin(load, overhead(Level.RECORD, 200 * MS, cpus))
    return pace


@dataclass(frozen=True)
class Driven:
    """A window of a recording, and the account at its end."""

    level: int
    length_s: float
    balance_ns: float
    """What the account held at its beginning."""
    dearest_ns: float
    """The most that was spent between two looks, in this window."""
    overdrawn_ns: float
    """What was spent and not earned, since the beginning."""


def drive(
    pace: Pace, seconds: float, cpus: Callable[[float], float], cost_factor: float = 1.0
) -> list[Driven]:
    """Follow the pace on a server that uses so many CPUs at a time; each window."""
    schedule = []
    now_s = 0.0
    step = pace.first()
    last: int = Level.RECORD
    while now_s < seconds:
        length_ns = step.length_ns
        used = cpus(now_s)
        balance_ns = pace.balance_ns
        dearest_ns = looked_at_ns = 0.0
        # The watchdog: at each look the window may end.
        for looked_ns in range(step.watch_ns, length_ns, step.watch_ns):
            so_far = overhead(step.level, looked_ns, used, cost_factor, own_ns=0.0)
            dearest_ns = max(dearest_ns, so_far.spent.total_ns - looked_at_ns)
            looked_at_ns = so_far.spent.total_ns
            if pace.overspends(so_far):
                length_ns = looked_ns
                break
        now_s += length_ns / NS_PER_S
        own_ns = CUT_NS + (TURN_NS if step.level != last else 0.0)
        one = overhead(step.level, length_ns, used, cost_factor, own_ns)
        dearest_ns = max(dearest_ns, one.spent.total_ns - looked_at_ns)
        last, level = step.level, step.level
        step = pace.ended(one, CUT_NS, TURN_NS, 0.0001)
        overdrawn_ns = pace.spent_ns - pace.earned_ns
        length_s = length_ns / NS_PER_S
        schedule.append(Driven(level, length_s, balance_ns, dearest_ns, overdrawn_ns))
    return schedule


def dense_share(schedule: list[Driven]) -> float:
    dense = sum(window.length_s for window in schedule if window.level == Level.RECORD)
    return dense / sum(window.length_s for window in schedule)


def test_dense_windows_alternate_with_light_ones_and_the_budget_holds() -> None:
    pace = begun(0.01)
    schedule = drive(pace, 120, lambda _: 1.2)
    levels = [window.level for window in schedule]
    assert levels.count(Level.RECORD) > 10
    assert not any(a == b == Level.RECORD for a, b in itertools.pairwise(levels))
    assert 0.006 < pace.spent_share <= 0.0105
    assert pace.choice is not None
    assert not pace.choice.is_continuous


def test_a_rise_of_the_load_makes_it_back_off() -> None:
    pace = begun(0.02, cpus=0.002)
    assert pace.choice is not None
    quiet = drive(pace, 60, lambda _: 0.002)
    assert dense_share(quiet) > 0.5
    loud = drive(pace, 120, lambda _: 2.0)
    assert dense_share(loud) < 0.1
    assert pace.spent_share <= 0.025


def test_a_window_that_turns_out_dear_is_ended_early() -> None:
    pace = begun(0.01)
    schedule = drive(pace, 60, lambda _: 1.2, cost_factor=10.0)
    first = next(window.length_s for window in schedule if window.level == Level.RECORD)
    assert pace.choice is not None
    assert first <= 0.05


def test_a_dense_window_waits_until_the_account_can_pay_for_it() -> None:
    schedule = drive(begun(0.005, cpus=0.6), 120, lambda _: 0.6, cost_factor=4.0)
    dense = [window for window in schedule if window.level == Level.RECORD]
    assert len(dense) > 5
    assert all(window.balance_ns > 0 for window in dense)


def test_a_recording_without_light_time_pauses_until_it_has_paid() -> None:
    calm = drive(begun(0.5, cpus=1.0), 60, lambda _: 1.0)
    assert {window.level for window in calm} == {Level.RECORD}
    pace = begun(0.5, cpus=1.0)
    first, second, *_ = drive(pace, 60, lambda _: 1.0, cost_factor=7.0)
    assert first.level == Level.RECORD
    assert first.overdrawn_ns > 0.25 * SECOND  # half a second of what is earned
    assert second.level == Level.SIGNATURE


def test_light_time_that_leaves_nothing_over_is_ended_early() -> None:
    schedule = drive(begun(0.02), 60, lambda _: 1.2, cost_factor=10.0)
    light = [window for window in schedule if window.level == Level.CONNECTION]
    assert light
    assert max(window.length_s for window in light) <= 2


def test_it_takes_more_once_the_load_is_gone() -> None:
    pace = begun(0.02, cpus=1.5)
    drive(pace, 30, lambda _: 1.5)
    assert dense_share(drive(pace, 120, lambda _: 0.002)) > 0.5


def test_nothing_is_on_while_nothing_fits() -> None:
    pace = begun(0.005, cpus=0.6)
    assert drive(pace, 10, lambda _: 0.6)[-1].level != NONE
    # The samples alone would take all that an idle server earns; the first window finds that out.
    _, *idle = drive(pace, 60, lambda _: 0.0)
    assert idle
    assert {window.level for window in idle} == {NONE}
    assert pace.choice is None
    assert drive(pace, 60, lambda _: 0.6)[-1].level != NONE


def test_light_time_varies() -> None:
    schedule = drive(begun(0.02), 120, lambda _: 1.2)
    lengths = {round(window.length_s, 3) for window in schedule if window.level == Level.CONNECTION}
    assert len(lengths) > 5


def test_reading_light_time_is_no_price_of_dense_windows() -> None:
    """As of 36 new TLS connections a second: 1 ms a second for who reads them, 6 ms a window.

    Both were once a price of ending any window: a minute had one dense window, after the trial.
    """
    cpus, watch, reading, read_ns = 0.13, 0.0002, 0.001, 6.0 * MS
    prices = (0.0, 0.016, 0.014, 0.008, 0.0, 0.01, 0.004)
    load = load_of(
        prices, cpus=cpus, scheduler=0.03, samples=0.00025, watch=watch, cut_ns=2 * MS,
        turn_ns=5 * MS, read_ns=5 * MS, reading=0.0005 / cpus,
    )  # fmt: skip
    pace = Pace(0.05, Level.RECORD, SECOND)
    assert pace.begin(load, overhead(Level.RECORD, 200 * MS, cpus))
    step, before, now_ns, levels = pace.first(), (Level.RECORD, 200 * MS), 0, []
    while now_ns < 60 * SECOND:
        is_dense, length_ns = step.level == Level.RECORD, step.length_ns
        cpu_ns = int(length_ns * cpus)
        by_level = tuple(
            cpu_ns * price if one <= step.level else 0.0
            for one, price in zip(Level, prices, strict=True)
        )
        turn_ns = 2.5 * MS if step.level != before[0] else -1.0
        to_read_ns = read_ns if before[0] == Level.RECORD else reading * before[1]
        own_ns = watch * length_ns + 2 * MS + max(0.0, turn_ns) + to_read_ns
        scheduler_ns = cpu_ns * 0.03 if is_dense else 0.0
        spent = Overhead(sum(by_level), scheduler_ns, length_ns * 0.00025, own_ns)
        levels.append(Level(step.level))
        before, now_ns = (levels[-1], length_ns), now_ns + length_ns
        one = Span(length_ns, cpu_ns, spent, by_level)
        step = pace.ended(one, 2.0 * MS, turn_ns, watch, to_read_ns)
    assert levels.count(Level.RECORD) >= 5
    assert set(levels) == {Level.RECORD, Level.SIGNATURE}
    assert pace.state.load.reading == pytest.approx(reading / cpus, rel=0.1)
    assert pace.state.load.read_ns == pytest.approx(read_ns, rel=0.1)
    assert pace.spent_ns <= pace.earned_ns + read_ns


def test_a_hopeless_budget_is_refused_after_the_trial() -> None:
    pace = Pace(0.001, Level.RECORD, SECOND)
    load = load_of(
        PRICES, cpus=0.5, scheduler=SCHEDULER, samples=0.01, cut_ns=CUT_NS, turn_ns=TURN_NS
    )
    assert not pace.begin(load, overhead(Level.RECORD, 200 * MS, 0.5))


@given(
    st.floats(0.005, 0.3),
    st.lists(st.floats(0.0, 4.0), min_size=1, max_size=6),
    st.floats(0.5, 4.0),
)
def test_whatever_the_load_does_the_budget_holds(
    share: float, loads: list[float], cost_factor: float
) -> None:
    pace = begun(share, cpus=1.0)
    trial_ns = overhead(Level.RECORD, 200 * MS, 1.0).spent.total_ns
    assert pace.spent_ns == trial_ns
    schedule = drive(pace, 300, lambda now_s: loads[int(now_s // 50) % len(loads)], cost_factor)
    # The trial is a debt from the start, and a surprise is seen at the next look.
    dearest_ns = max(window.dearest_ns for window in schedule)
    assert max(window.overdrawn_ns for window in schedule) <= trial_ns + dearest_ns


CONNECTS = (0.0, 0.035, 0.02, 0.008, 0.0, 0.02, 0.01)
"""Of 60 connections a second at 0.1 CPUs: the probes of handshakes fit, with little left."""


def connects(factor: float, level: int) -> Span:
    """Ten seconds of them, in which a connection costs that many times the usual."""
    cpu_ns = SECOND
    by_level = tuple(
        cpu_ns * price * factor if one <= level else 0.0
        for one, price in zip(Level, CONNECTS, strict=True)
    )
    return Span(10 * SECOND, cpu_ns, Overhead(sum(by_level), 0.0, 3 * MS, 7 * MS), by_level)


def levels_between(factor: float) -> set[int]:
    """What is on between dense windows, after a window that cost that many times the usual."""
    pace = Pace(0.05, Level.RECORD, SECOND)
    load = load_of(
        CONNECTS, cpus=0.1, scheduler=0.06, samples=0.0003, watch=0.0007, cut_ns=MS, turn_ns=5 * MS
    )
    assert pace.begin(load, overhead(Level.RECORD, 20 * MS, 0.1))
    level = pace.first().level
    levels = [level]
    for number in range(4):
        span = connects(1.0 if number else factor, level)
        level = pace.ended(span, MS, -1.0, 0.0007).level
        levels.append(level)
    return set(levels) - {Level.RECORD}


def test_handshakes_of_a_lightly_loaded_server_are_kept_while_they_fit_into_the_budget() -> None:
    """A choice leaves a tenth unused; a window in which they take that does not end them."""
    assert levels_between(1.0) == {Level.SIGNATURE}
    assert levels_between(1.3) == {Level.SIGNATURE}
    assert Level.SAMPLE in levels_between(3.0)


def test_reading_the_window_before_does_not_end_light_time() -> None:
    """A watch of 2 s in which the last window was read earns less than both take."""
    pace = Pace(0.05, Level.RECORD, SECOND)
    load = load_of(
        CONNECTS, cpus=0.1, scheduler=0.06, samples=0.0003, watch=0.0007, cut_ns=MS, turn_ns=5 * MS
    )
    assert pace.begin(load, overhead(Level.RECORD, 20 * MS, 0.1))
    assert pace.first().level == Level.SIGNATURE
    whole = connects(1.0, Level.SIGNATURE)
    spent = Overhead(whole.spent.probes_ns / 5, 0.0, 0.6 * MS, 5 * MS)
    watched = Span(2 * SECOND, whole.target_cpu_ns // 5, spent, whole.by_level_ns)
    assert spent.total_ns > 0.05 * watched.target_cpu_ns
    assert not pace.overspends(watched)
    watched.spent.probes_ns *= 2  # what the server costs does
    assert pace.overspends(watched)

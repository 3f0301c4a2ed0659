# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of a budget: what is chosen fits, what is earned covers what is spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.recording.engine.budget import (
    FLOOR_CPUS,
    LONGEST_CYCLE_NS,
    MARGIN,
    NS_PER_S,
    Account,
    Load,
    Overhead,
    choose,
    has_ledger,
    percent,
    window_cost,
    with_rates,
)
from tlstax.probes.model import Level

MS = 1_000_000
SECOND = NS_PER_S


def busy(**changes: float) -> Load:
    """Point selects: 1.2 CPUs, 12 % for command and record probes, 8 % for scheduler events."""
    values: dict[str, float] = {
        "cpus": 1.2,
        "scheduler": 0.08,
        "samples": 0.0004,
        "cut_ns": 3 * MS,
        "turn_ns": 4 * MS,
    }
    values |= changes
    return Load(probes=(0.0, 0.0, 0.0, 0.08, 0.04), **values)


def storm() -> Load:
    """Connects: the sub-phases of the handshake alone cost 4 %."""
    return Load(1.0, (0.0, 0.04, 0.0, 0.01, 0.01), 0.02, 0.0004, 3 * MS, 4 * MS)


def test_a_large_budget_takes_everything_all_the_time() -> None:
    choice = choose(busy(), 0.5, Level.RECORD, SECOND)
    assert choice.is_continuous
    assert choice.dense == Level.RECORD
    assert choice.predicted.probes_ns == pytest.approx(0.12 * 1.2 * SECOND)


def test_one_per_cent_alternates() -> None:
    choice = choose(busy(), 0.01, Level.RECORD, SECOND)
    assert not choice.is_continuous
    assert choice.dense == Level.RECORD
    assert choice.light == Level.HANDSHAKE
    assert choice.share <= 0.01
    assert choice.dense_ns / choice.cycle_ns > 0.01


def test_a_storm_windows_the_sub_phases_too() -> None:
    choice = choose(storm(), 0.02, Level.RECORD, SECOND)
    assert choice.light == Level.SAMPLE


def test_an_idle_server_has_everything() -> None:
    load = Load(0.0, (0.0, 0.0, 0.0, 0.0), 0.0, 0.0004, 3 * MS, 4 * MS)
    choice = choose(load, 0.01, Level.RECORD, SECOND)
    assert choice.dense == Level.RECORD
    assert choice.is_continuous
    assert choice.dense_ns == 10 * SECOND


def test_a_level_is_never_exceeded() -> None:
    choice = choose(busy(), 0.5, Level.HANDSHAKE, SECOND)
    assert choice.dense == Level.HANDSHAKE
    assert choice.predicted.scheduler_ns == 0


def test_where_no_window_can_be_paid_a_lower_level_remains() -> None:
    choice = choose(busy(cut_ns=60 * MS, turn_ns=300 * MS), 0.01, Level.RECORD, SECOND)
    assert choice.is_continuous
    assert choice.dense == Level.HANDSHAKE
    assert not has_ledger(choice.dense)


def test_a_hopeless_budget_is_refused_in_words() -> None:
    with pytest.raises(TlstaxError) as caught:
        choose(busy(samples=0.01), 0.001, Level.RECORD, SECOND)
    error = caught.value
    assert error.exit_code == ExitCode.BUDGET
    assert "0.1%" in error.what
    assert "1.20 CPUs" in error.why
    assert "--sample-hz" in error.do
    needed = float(error.do.partition("--budget ")[2].partition("%")[0]) / 100
    assert choose(busy(samples=0.01), needed, Level.RECORD, SECOND).share <= needed


SHARES = st.floats(0, 0.3)
LOADS = st.builds(
    Load,
    cpus=st.floats(0, 64),
    probes=st.tuples(st.just(0.0), SHARES, SHARES, SHARES),
    scheduler=SHARES,
    samples=st.floats(0, 0.05),
    cut_ns=st.floats(0, 50 * MS),
    turn_ns=st.floats(0, 100 * MS),
    watch=st.floats(0, 0.001),
)


@given(LOADS, st.floats(0.001, 0.5), st.sampled_from(Level))
def test_the_predicted_cost_never_exceeds_the_budget(load: Load, share: float, most: Level) -> None:
    try:
        choice = choose(load, share, most, SECOND)
    except TlstaxError:
        return
    assert choice.predicted.total_ns <= share * MARGIN * load.base * SECOND * (1 + 1e-9) + 1
    assert choice.dense <= most
    assert choice.light is None or choice.light < choice.dense
    assert choice.is_continuous or choice.cycle_ns <= LONGEST_CYCLE_NS


@given(LOADS, st.floats(0.001, 0.4), st.sampled_from(Level))
def test_a_larger_budget_never_gives_a_lower_level(load: Load, share: float, most: Level) -> None:
    try:
        smaller = choose(load, share, most, SECOND)
    except TlstaxError:
        return
    assert choose(load, share * 1.2, most, SECOND).dense >= smaller.dense


@given(st.lists(st.tuples(st.floats(0, 4), st.booleans()), min_size=1, max_size=300))
def test_what_is_spent_was_earned(loads: list[tuple[float, bool]]) -> None:
    """A recorder that opens a window only when it is paid for, under any load and any surprise."""
    account = Account(0.01)
    dearest_ns = 0.0
    for cpus, surprise in loads:
        used_ns = int(cpus * SECOND)
        one_ns = 30.0 * MS * (3 if surprise else 1)
        spent = Overhead()
        if account.balance_ns >= 30 * MS:
            spent, dearest_ns = Overhead(probes_ns=one_ns), max(dearest_ns, one_ns)
        account.settle(SECOND, used_ns, spent)
    assert account.spent.total_ns <= account.earned_ns + dearest_ns


def test_a_quiet_night_is_not_saved_up() -> None:
    account = Account(0.01)
    for _ in range(3600):
        account.settle(SECOND, SECOND, Overhead())
    assert account.balance_ns == pytest.approx(10 * 0.01 * SECOND)


def test_an_idle_server_earns_the_floor() -> None:
    account = Account(0.01)
    account.settle(SECOND, 0, Overhead())
    assert account.balance_ns == pytest.approx(0.01 * FLOOR_CPUS * SECOND)
    assert account.spent_share is None


def test_rates_follow_the_load() -> None:
    seen = with_rates(busy(), Level.COMMAND, 2 * SECOND, SECOND, (0, 0.2e9, 0, 0.4e9, 0, 0.1e9))
    assert seen.cpus == 2.0
    assert seen.probes == (0.0, 0.1, 0.0, 0.2, 0.04)
    assert seen.scheduler == pytest.approx(0.05)
    light = with_rates(seen, Level.HANDSHAKE, SECOND, SECOND, (0, 0.3e9, 0, 0, 0, 0))
    assert light.probes == (0.0, 0.3, 0.0, 0.2, 0.04)
    assert light.scheduler == seen.scheduler


def test_a_window_costs_its_events_and_its_making() -> None:
    cost = window_cost(busy(), Level.RECORD, Level.HANDSHAKE, 100 * MS)
    assert cost.probes_ns == pytest.approx(0.12 * 1.2 * 100 * MS)
    assert cost.collector_ns == pytest.approx(10 * MS)


@pytest.mark.parametrize(
    ("share", "text"), [(0.01, "1%"), (0.005, "0.5%"), (0.001, "0.1%"), (0.25, "25%")]
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text
    assert float(percent(share * 1.01, up=True)[:-1]) > share * 100


def test_level_flow_is_no_part_of_a_plan_with_probes_at_commands() -> None:
    # Its programs would wait for probes that are detached, and find no command.
    for share in (0.3, 0.1, 0.03, 0.01, 0.003):
        choice = choose(busy(turn_ns=1000 * MS), share, Level.RECORD, SECOND)
        assert Level.FLOW not in (choice.dense, choice.light)


def test_level_flow_is_recorded_all_the_time_where_it_fits() -> None:
    choice = choose(busy(), 0.2, Level.FLOW, SECOND)
    assert (choice.dense, choice.is_continuous) == (Level.FLOW, True)
    assert choice.predicted.scheduler_ns == pytest.approx(0.08 * 1.2 * SECOND)

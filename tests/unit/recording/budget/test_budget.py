# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of budget.c: what is chosen fits, what is earned covers what is spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax.probes.model import Level
from tlstax.tests.unit.recording.budget.budget_in_c import (
    CLOSE_MARGIN,
    FEW_CPUS,
    FLOOR_CPUS,
    LONGEST_CYCLE_NS,
    MARGIN,
    MS,
    NONE,
    SECOND,
    Account,
    Choice,
    Load,
    Overhead,
    Span,
    busy,
    choose,
    chosen,
    few_connects,
    library,
    load_of,
    refusal,
    settle,
)


def storm() -> Load:
    """Connects: the sub-phases of the handshake alone cost 4 %."""
    return load_of(
        (0.0, 0.024, 0.016, 0.0, 0.0, 0.01, 0.01),
        cpus=1.0,
        scheduler=0.02,
        samples=0.0004,
        cut_ns=3 * MS,
        turn_ns=4 * MS,
    )


def cost_share(load: Load, choice: Choice) -> float:
    return float(choice.predicted.total_ns / (load.base * SECOND))


FIRST_WINDOWS = 5


def test_a_large_budget_takes_everything_all_the_time() -> None:
    choice = chosen(busy(), 0.5, Level.RECORD)
    assert choice.is_continuous
    assert choice.dense == Level.RECORD
    assert choice.predicted.probes_ns == pytest.approx(0.12 * 1.2 * SECOND)


def test_one_per_cent_alternates() -> None:
    choice = chosen(busy(), 0.01, Level.RECORD)
    assert not choice.is_continuous
    assert choice.dense == Level.RECORD
    assert choice.light == Level.CONNECTION
    assert cost_share(busy(), choice) <= 0.01
    assert choice.dense_ns / choice.cycle_ns > 0.01


def test_windows_of_a_calm_server_are_longer() -> None:
    """There attaching and storing cost more than what is recorded: few long windows see more."""
    calm = busy(cpus=0.2, cut_ns=5 * MS, dense_count=FIRST_WINDOWS)
    choice = chosen(calm, 0.1, Level.RECORD)
    assert choice.light == Level.CONNECTION
    assert choice.dense_ns == SECOND
    assert choice.dense_ns / choice.cycle_ns > 0.25
    assert chosen(busy(), 0.05, Level.RECORD).dense_ns == 100 * MS


def test_the_first_windows_are_many_rather_than_long() -> None:
    """A range over windows needs four: a short recording should have them."""
    for count in range(FIRST_WINDOWS):
        first = busy(cpus=0.2, cut_ns=5 * MS, dense_count=count)
        assert chosen(first, 0.1, Level.RECORD).dense_ns == 500 * MS


def test_dense_windows_come_before_operations_of_all_handshakes() -> None:
    """Connections and signatures would take 0.4 of what plans use, operations as well 0.7."""
    load = load_of((0.0, 0.018, 0.012, 0.0, 0.0, 0.02, 0.02), cpus=0.14, scheduler=0.03)
    choice = chosen(load, 0.05, Level.RECORD)
    assert not choice.is_continuous
    assert choice.light == Level.SIGNATURE


def test_a_storm_windows_the_sub_phases_too() -> None:
    choice = chosen(storm(), 0.02, Level.RECORD)
    assert choice.light == Level.SAMPLE


def test_all_handshakes_of_a_lightly_loaded_server_come_before_dense_windows() -> None:
    choice = chosen(few_connects(), 0.05, Level.RECORD)
    assert (choice.dense, choice.light) == (Level.RECORD, Level.SIGNATURE)
    assert cost_share(few_connects(), choice) <= 0.05 * CLOSE_MARGIN
    # A busy server has enough of them in dense windows, which tell more.
    busy_one = few_connects(cpus=1.0, probes=0.036)
    assert chosen(busy_one, 0.05, Level.RECORD).light == Level.SAMPLE
    # Where they do not fit there is no choice.
    assert chosen(few_connects(probes=0.045), 0.05, Level.RECORD).light == Level.SAMPLE


def test_events_of_other_processes_keep_an_idle_server_from_being_recorded_all_the_time() -> None:
    """They cost the same whatever the server does: 4 ms a second are most of 5 % of 0.1 CPUs."""
    idle = load_of(
        (0.0,) * len(Level), cpus=0.001, samples=0.0003, watch=0.0003, cut_ns=MS, turn_ns=5 * MS
    )
    assert chosen(idle, 0.05, Level.RECORD).is_continuous
    idle.neighbours = 0.004
    choice = chosen(idle, 0.05, Level.RECORD)
    assert not choice.is_continuous
    assert 0 < choice.predicted.neighbours_ns < 0.004 * SECOND
    seen = Span(SECOND, 0, Overhead(neighbours_ns=0.008e9))
    library().load_learn(idle, Level.FLOW, seen, 0.5)
    assert idle.neighbours == pytest.approx(0.006)
    library().load_learn(idle, Level.SAMPLE, Span(SECOND, 0), 0.5)  # they are not seen then
    assert idle.neighbours == pytest.approx(0.006)


def test_which_connections_end_is_recorded_where_there_is_room_for_that() -> None:
    """It may use half of what plans use: a trial of few connections does not know what it costs."""
    for probes, checks, level in (
        (0.002, 0.001, Level.CONNECTION),
        (0.008, 0.002, Level.HANDSHAKE),
        (0.012, 0.020, Level.SIGNATURE),
    ):
        assert chosen(few_connects(0.2, probes, checks), 0.05, Level.RECORD).light == level


def test_dense_windows_get_what_handshakes_leave_of_what_plans_use() -> None:
    """More would be spent of a budget whose prices are uncertain; handshakes may need more."""
    cheap, dear = few_connects(probes=0.022), few_connects(probes=0.034)
    assert cost_share(cheap, chosen(cheap, 0.05, Level.RECORD)) <= 0.05 * MARGIN
    assert cost_share(dear, chosen(dear, 0.05, Level.RECORD)) > 0.05 * MARGIN


def test_an_idle_server_has_everything() -> None:
    load = load_of((), samples=0.0004, cut_ns=3 * MS, turn_ns=4 * MS)
    choice = chosen(load, 0.01, Level.RECORD)
    assert choice.dense == Level.RECORD
    assert choice.is_continuous
    assert choice.dense_ns == 10 * SECOND


def test_a_level_is_never_exceeded() -> None:
    choice = chosen(busy(), 0.5, Level.HANDSHAKE)
    assert choice.dense == Level.HANDSHAKE
    assert choice.predicted.scheduler_ns == 0


def test_where_no_window_can_be_paid_a_lower_level_remains() -> None:
    choice = chosen(busy(cut_ns=60 * MS, turn_ns=300 * MS), 0.01, Level.RECORD)
    assert choice.is_continuous
    assert choice.dense == Level.HANDSHAKE


def test_a_hopeless_budget_is_refused_in_words() -> None:
    load = busy(samples=0.01)
    assert choose(load, 0.001, Level.RECORD, SECOND) is None
    why = refusal(load, 0.001)
    for words in ("0.1%", "1.20 CPUs", "--sample-hz"):
        assert words in why
    needed = float(why.partition("--budget ")[2].partition("%")[0]) / 100
    assert cost_share(load, chosen(load, needed, Level.RECORD)) <= needed


def test_windows_are_as_short_as_their_price_allows() -> None:
    lengths = [
        chosen(busy(cut_ns=cut_ns), 0.3, Level.RECORD).dense_ns // SECOND
        for cut_ns in (3 * MS, 100 * MS, 200 * MS, 400 * MS)
    ]
    assert lengths == [1, 2, 5, 10]


SHARES = st.floats(0, 0.3)
LOADS = st.builds(
    load_of,
    probes=st.tuples(st.just(0.0), SHARES, SHARES, SHARES, SHARES, SHARES),
    cpus=st.floats(0, 64),
    scheduler=SHARES,
    samples=st.floats(0, 0.05),
    cut_ns=st.floats(0, 50 * MS),
    turn_ns=st.floats(0, 100 * MS),
    watch=st.floats(0, 0.001),
)


@given(LOADS, st.floats(0.001, 0.5), st.sampled_from(Level))
def test_the_predicted_cost_never_exceeds_the_budget(load: Load, share: float, most: Level) -> None:
    choice = choose(load, share, most, SECOND)
    if choice is None:
        return
    margin = CLOSE_MARGIN if load.cpus <= FEW_CPUS else MARGIN
    assert choice.predicted.total_ns <= share * margin * load.base * SECOND * (1 + 1e-9) + 1
    assert choice.dense <= most
    assert choice.light == NONE or choice.light < choice.dense
    assert choice.is_continuous or choice.cycle_ns <= LONGEST_CYCLE_NS


@given(LOADS, st.floats(0.001, 0.4), st.sampled_from(Level))
def test_a_larger_budget_never_gives_a_lower_level(load: Load, share: float, most: Level) -> None:
    smaller = choose(load, share, most, SECOND)
    if smaller is None:
        return
    assert chosen(load, share * 1.2, most).dense >= smaller.dense


@given(st.lists(st.tuples(st.floats(0, 4), st.booleans()), min_size=1, max_size=300))
def test_what_is_spent_was_earned(loads: list[tuple[float, bool]]) -> None:
    """A recorder that opens a window only when it is paid for, under any load and any surprise."""
    account = Account(0.01)
    earned_ns = spent_ns = dearest_ns = 0.0
    for cpus, surprise in loads:
        one_ns = 30.0 * MS * (3 if surprise else 1) if account.balance_ns >= 30 * MS else 0.0
        dearest_ns = max(dearest_ns, one_ns)
        settle(account, Span(SECOND, int(cpus * SECOND), Overhead(one_ns)))
        spent_ns += one_ns
        earned_ns += 0.01 * max(cpus, FLOOR_CPUS) * SECOND
    assert spent_ns <= earned_ns + dearest_ns


def test_a_quiet_night_is_not_saved_up() -> None:
    account = Account(0.01)
    for _ in range(3600):
        settle(account, Span(SECOND, SECOND))
    assert account.balance_ns == pytest.approx(10 * 0.01 * SECOND)


def test_an_idle_server_earns_the_floor() -> None:
    account = Account(0.01)
    settle(account, Span(SECOND, 0))
    assert account.balance_ns == pytest.approx(0.01 * FLOOR_CPUS * SECOND)


def test_a_window_costs_its_events_and_its_making() -> None:
    cost_ns = library().window_cost(busy(), Level.RECORD, Level.HANDSHAKE, 100 * MS)
    assert cost_ns == pytest.approx((0.12 + 0.08) * 1.2 * 100 * MS + 10 * MS)


def test_level_flow_is_no_part_of_a_plan_with_probes_at_commands() -> None:
    # Its programs would wait for probes that are detached, and find no command.
    for share in (0.3, 0.1, 0.03, 0.01, 0.003):
        choice = chosen(busy(turn_ns=1000 * MS), share, Level.RECORD)
        assert Level.FLOW not in (choice.dense, choice.light)


def test_level_flow_is_recorded_all_the_time_where_it_fits() -> None:
    choice = chosen(busy(), 0.2, Level.FLOW)
    assert (choice.dense, choice.is_continuous) == (Level.FLOW, True)
    assert choice.predicted.scheduler_ns == pytest.approx(0.08 * 1.2 * SECOND)


def test_a_watch_counts_an_idle_server_as_more() -> None:
    """Reading a window of 10 s costs 6 ms, for which 0.5 % of a tenth of a CPU does not pay."""
    load = load_of((), samples=0.00001, cut_ns=6 * MS, turn_ns=4 * MS)
    assert choose(load, 0.005, Level.FLOW, 10 * SECOND) is None
    try:
        library().budget_set_floor(1.0)
        choice = chosen(load, 0.005, Level.FLOW)
        assert (choice.dense, choice.is_continuous) == (Level.FLOW, True)
        account = Account(0.005)
        settle(account, Span(SECOND, 0))
        assert account.balance_ns == pytest.approx(0.005 * SECOND)
        assert "less than 1 counts" in refusal(load, 0.0001)
    finally:
        library().budget_set_floor(FLOOR_CPUS)


@pytest.mark.parametrize("cpus", [0.0, 0.05, 2.0])
def test_a_trial_ends_when_it_has_used_what_a_second_earns(cpus: float) -> None:
    earned_ns = 0.05 * max(cpus, FLOOR_CPUS) * SECOND
    for part, is_over in ((0.99, False), (1.01, True)):
        spent = Overhead(probes_ns=0.6 * part * earned_ns, scheduler_ns=0.4 * part * earned_ns)
        trial = Span(length_ns=20 * MS, target_cpu_ns=int(cpus * 20 * MS), spent=spent)
        assert library().trial_overspends(trial, 0.05) is is_over

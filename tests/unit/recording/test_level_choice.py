# SPDX-License-Identifier: GPL-2.0-only
"""The level of a watch: the budget is kept over minutes, and the best level is not given up."""

from itertools import pairwise

import pytest

from tlstax.collectors.watching.level_choice import JUDGED, LIGHT_MOST, Cost, LevelChoice
from tlstax.probes.model import Level

SECOND_NS = 1_000_000_000
BUDGET = 0.005


def cost(share: float, cpus: float = 2.0) -> Cost:
    server_ns = round(10 * cpus * SECOND_NS)
    return Cost(10 * SECOND_NS, server_ns, share * server_ns)


def run(choice: LevelChoice, flow: float, handshake: float, windows: int) -> list[Level]:
    """The level of each window, for a load at which the levels cost this much."""
    levels = []
    for _ in range(windows):
        levels.append(choice.level)
        choice.window(cost(flow if choice.level == Level.FLOW else handshake))
    return levels


def test_what_fits_stays() -> None:
    assert set(run(LevelChoice(Level.FLOW, BUDGET), 0.0049, 0.001, 500)) == {Level.FLOW}


def test_one_expensive_window_changes_nothing() -> None:
    choice = LevelChoice(Level.FLOW, BUDGET)
    for share in (0.001, 0.03, 0.001, 0.03, 0.03, 0.001) * 9:
        assert not choice.window(cost(share))


@pytest.mark.parametrize(("flow", "handshake"), [(0.05, 0.001), (0.02, 0.002), (0.007, 0.0001)])
def test_the_mean_cost_is_within_the_budget(flow: float, handshake: float) -> None:
    levels = run(LevelChoice(Level.FLOW, BUDGET), flow, handshake, 4000)
    settled = levels[levels.index(Level.HANDSHAKE) :]
    costs = [flow if level == Level.FLOW else handshake for level in settled]
    assert levels[:JUDGED] == [Level.FLOW] * JUDGED
    assert sum(costs) / len(costs) <= BUDGET
    assert Level.FLOW in settled


def test_what_a_change_of_the_level_costs_is_within_the_budget() -> None:
    choice, levels, start_ns = LevelChoice(Level.FLOW, BUDGET), [], 0.15 * SECOND_NS
    for _ in range(4000):
        levels.append(choice.level)
        share = 0.02 if choice.level == Level.FLOW else 0.001
        choice.window(cost(share), start_ns)
    settled = levels[levels.index(Level.HANDSHAKE) :]
    changes = sum(one != other for one, other in pairwise(settled))
    spent = sum(0.02 if level == Level.FLOW else 0.001 for level in settled)
    spent += changes * start_ns / cost(0).base_ns
    assert spent / len(settled) <= BUDGET
    assert changes > 20


def test_a_budget_that_even_handshakes_exceed_leaves_a_stretch_an_hour() -> None:
    levels = run(LevelChoice(Level.FLOW, BUDGET), 0.05, 0.006, 3 * LIGHT_MOST)
    assert levels.count(Level.FLOW) <= JUDGED + 3
    assert Level.FLOW in levels[LIGHT_MOST:]


def test_a_load_that_falls_brings_the_level_back() -> None:
    choice = LevelChoice(Level.FLOW, BUDGET)
    run(choice, 0.05, 0.001, 20)
    was_alternating = choice.is_alternating
    levels = run(choice, 0.001, 0.001, 100)
    assert levels[-50:] == [Level.FLOW] * 50
    assert [was_alternating, choice.is_alternating] == [True, False]
    assert not choice.window(cost(0.03))  # one expensive window is none of a stretch


def test_a_server_that_is_idle_is_counted_as_using_a_cpu() -> None:
    choice = LevelChoice(Level.FLOW, BUDGET)
    idle = Cost(10 * SECOND_NS, 1000, 0.004 * 10 * SECOND_NS)
    assert not any(choice.window(idle) for _ in range(50))


def test_a_kernel_without_the_level_has_no_choice() -> None:
    choice = LevelChoice(Level.SAMPLE, BUDGET)
    assert not any(choice.window(cost(0.5)) for _ in range(50))

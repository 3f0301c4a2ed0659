# SPDX-License-Identifier: GPL-2.0-only
"""What the recorder's budget.c learns of what recording costs: from its trial, and after it."""

import pytest

from tlstax.probes.model import Level
from tlstax.tests.unit.recording.budget.budget_in_c import (
    MS,
    NONE,
    SECOND,
    Load,
    Overhead,
    Span,
    busy,
    chosen,
    few_connects,
    library,
)


def test_a_trial_that_was_disturbed_is_made_again() -> None:
    """As seen on a virtual machine: samples cost 3 ms in 0.1 s, and nothing was on for 20 s."""

    def is_doubtful(load: Load) -> bool:
        return bool(library().trial_is_doubtful(load, 0.05, Level.RECORD, SECOND))

    disturbed = few_connects()
    disturbed.samples = 0.03
    assert chosen(disturbed, 0.05, Level.RECORD).light == NONE
    assert is_doubtful(disturbed)
    assert not is_doubtful(few_connects())
    assert not is_doubtful(few_connects(cpus=1.0, probes=0.036)), "it has other handshakes"
    assert not is_doubtful(few_connects(cpus=0.001, probes=0.0)), "everything is on"
    again = few_connects(probes=0.034)
    library().trials_join(again, disturbed)
    assert again.samples == few_connects().samples
    assert again.probes[Level.SIGNATURE] == pytest.approx(0.032)
    assert again.known_ns[Level.SIGNATURE] == 2 * few_connects().known_ns[Level.SIGNATURE]
    assert chosen(again, 0.05, Level.RECORD).light == Level.SIGNATURE


def test_two_trials_cost_what_both_cost() -> None:
    one = Span(SECOND, 100 * MS, Overhead(1.0, 2.0, 3.0, 4.0, 5.0), (1, 2, 3, 4, 5, 6, 7))
    library().spans_join(one, Span(SECOND, 50 * MS, Overhead(1, 1, 1, 1, 1), (1,) * len(Level)))
    assert (one.length_ns, one.target_cpu_ns) == (2 * SECOND, 150 * MS)
    assert one.spent.total_ns == 20.0
    assert tuple(one.by_level_ns) == (2, 3, 4, 5, 6, 7, 8)


def test_what_samples_cost_is_learned_after_the_trial() -> None:
    load = few_connects()
    load.samples, load.known_ns[Level.SAMPLE] = 0.03, 0.1 * SECOND
    seen = Span(SECOND, SECOND, Overhead(samples_ns=0.001 * SECOND))
    library().load_learn(load, Level.RECORD, seen, 0.3)
    assert load.samples == pytest.approx(0.001 + 0.029 * 0.1 / 1.1)


def test_a_window_counts_as_much_as_its_part_of_what_was_seen() -> None:
    """A trial of 0.2 s that met few connections is not two thirds of what is known after 10 s."""
    load = busy()
    load.known_ns[Level.HANDSHAKE] = 0.2 * SECOND
    spent = (0, 0, 0.3e9, 0, 0, 0, 0)
    library().load_learn(load, Level.HANDSHAKE, Span(SECOND, SECOND, Overhead(), spent), 0.3)
    before, after = busy().probes[Level.HANDSHAKE], load.probes[Level.HANDSHAKE]
    assert after == pytest.approx(before + (0.3 - before) / 1.2)
    library().load_learn(load, Level.HANDSHAKE, Span(SECOND, SECOND), 0.3)
    assert load.probes[Level.HANDSHAKE] == pytest.approx(after * (1 - 1 / 2.2))
    for _ in range(20):  # later a change counts as much as it always did
        library().load_learn(load, Level.HANDSHAKE, Span(SECOND, SECOND), 0.3)
    known = load.probes[Level.HANDSHAKE]
    library().load_learn(load, Level.HANDSHAKE, Span(SECOND, SECOND), 0.3)
    assert load.probes[Level.HANDSHAKE] == pytest.approx(known * 0.7)


def test_rates_follow_the_load() -> None:
    load = busy()
    seen = Span(SECOND, 2 * SECOND, Overhead(0, 0.1e9), (0, 0.2e9, 0, 0, 0, 0.4e9, 0))
    library().load_learn(load, Level.COMMAND, seen, 1.0)
    assert load.cpus == 2.0
    assert tuple(load.probes) == pytest.approx((0.0, 0.1, 0.0, 0.0, 0.0, 0.2, 0.04))
    assert load.scheduler == pytest.approx(0.05)
    light = Span(SECOND, SECOND, Overhead(), (0, 0.3e9, 0, 0, 0, 0, 0))
    library().load_learn(load, Level.SIGNATURE, light, 1.0)
    assert tuple(load.probes) == pytest.approx((0.0, 0.3, 0.0, 0.0, 0.0, 0.2, 0.04))
    assert load.scheduler == pytest.approx(0.05)

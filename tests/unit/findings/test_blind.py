# SPDX-License-Identifier: GPL-2.0-only
"""The blind set follows from its seed, and keeps what each case is made of."""

from tlstax.tests.truth.causes import blind
from tlstax.tests.truth.causes.causes import CASES, true_of


def test_a_seed_gives_one_set_and_another_seed_another() -> None:
    assert blind.cases(7) == blind.cases(7)
    assert blind.cases(7) != blind.cases(8)
    assert blind.controls(7) == blind.controls(7)
    assert blind.controls(7) != blind.controls(8)


def test_a_drawn_case_has_its_cause_and_is_no_case_that_was_seen() -> None:
    drawn = blind.cases(1)
    assert drawn.keys() == CASES.keys()
    for name, case in drawn.items():
        assert case.expected == CASES[name].expected
        assert len(case.parameters) == blind.PER_CAUSE
        for one in case.parameters:
            old = CASES[name].parameters
            assert any((one.script, one.stranger) == (was.script, was.stranger) for was in old)
            assert bool(one.rtt_ms) == any(was.rtt_ms for was in old)
            assert one.threads >= 1
    seen = {repr(one) for case in CASES.values() for one in case.parameters}
    new = [one for case in drawn.values() for one in case.parameters if repr(one) not in seen]
    assert len(new) > len(CASES)


def test_healthy_loads_have_no_cause() -> None:
    controls = blind.controls(1)
    assert len(controls) == blind.CONTROLS_COUNT
    assert not any(true_of(one) for one in controls.values())

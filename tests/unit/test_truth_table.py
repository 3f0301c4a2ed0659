# SPDX-License-Identifier: GPL-2.0-only
"""A table of truths on two machines: what failed, and the comparison nearest to its bound."""

import json

from tlstax.tests.figures import Figure
from tlstax.tests.kernels import truth_table

PASSED = '<testcase classname="tests.truth.test_states" name="test_spins[{}]">{}</testcase>'
FAILED = '<testcase classname="tests.truth.test_states" name="test_waits"><failure/></testcase>'


def xml(*cases: str) -> str:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def noted(*figures: Figure) -> str:
    properties = (f"<property name='figure' value='{json.dumps(figure)}'/>" for figure in figures)
    return f"<properties>{''.join(properties)}</properties>"


def test_the_comparison_nearest_to_its_bound_is_shown() -> None:
    near = noted(Figure("connect/on_cpu, ns", 20e6, 21e6, 2e6))
    far = noted(Figure("idle/on_cpu, ns", 20e6, 21e6, 4e6))
    here = xml(PASSED.format("a", far))
    there = xml(PASSED.format("a", far), PASSED.format("b", near))
    text = truth_table.text(truth_table.rows([here], [there]))
    assert "| test_states: spins | 1 passed; idle/on_cpu: 21.0 for 20.0 ± 4.0 ms | " in text
    assert "2 passed; connect/on_cpu: 21.0 for 20.0 ± 2.0 ms |" in text


def test_what_failed_is_named_and_what_ran_on_one_machine_only() -> None:
    counts = noted(Figure("records", 23, 23, 0))
    there = xml(FAILED), xml(PASSED.format("a", counts))
    rows = truth_table.rows([xml(PASSED.format("a", ""))], list(there))
    assert [row.there.failed for row in rows] == [1, 0]
    text = truth_table.text(rows)
    assert "| test_states: spins | 1 passed | 1 passed; records: 23 of 23 |" in text
    assert "| test_states: waits | 1 **failed** |" in text


def test_a_count_that_differs_is_beyond_its_bound() -> None:
    assert Figure("records", 23, 22, 0).used > 1
    assert Figure("records", 23, 23, 0).used == 0


def test_of_a_test_that_was_measured_again_the_last_counts() -> None:
    far = noted(Figure("latency, ns", 20e6, 23e6, 2e6))
    both = noted(Figure("latency, ns", 20e6, 23e6, 2e6), Figure("latency, ns", 20e6, 21e6, 2e6))
    there = xml(PASSED.format("a", far), PASSED.format("a", both))
    text = truth_table.text(truth_table.rows([], [there]))
    assert "1 passed (1 measured again); latency: 21.0 for 20.0 ± 2.0 ms" in text

# SPDX-License-Identifier: GPL-2.0-only
"""What a user reads of a budget: what is on when, which level, and why."""

import re
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.recording.programs.expected_cost import EVENTS_PART, budget_summary
from tlstax.collectors.recording.stream.definition import definition

ELSE = "--level sets another."
SECOND = 1_000_000_000
SOURCE = Path(__file__).resolve().parents[3] / "collectors/recorder/levels.c"


def budget(**values: Any) -> Any:
    """5 % of a CPU, everything all the time, at a level that was given."""
    usual: dict[str, Any] = {
        "share_ppm": 50_000,
        "base_ns": SECOND,
        "dense_ns": SECOND,
        "cycle_ns": SECOND,
    }
    usual |= {"dense": b"record", "light": b"none", "probes_ns": 10_000_000}
    return definition().layout("budget")(**usual | values)


def chosen(flow_ns: int, record_ns: int, **values: Any) -> str:
    """The summary where the recorder chose by these costs a second."""
    return budget_summary(
        budget(level_base_ns=SECOND, flow_ns=flow_ns, record_ns=record_ns, **values)
    )


def test_a_level_that_was_given_needs_no_reason() -> None:
    assert budget_summary(budget()) == (
        "Budget 5% of the server's CPU time: everything, all the time; expected cost 1.00%."
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            chosen(4_000_000, 20_000_000),
            " Level record: its events were expected to cost 2.00%. " + ELSE,
        ),
        (
            chosen(4_000_000, 20_000_000, dense_ns=SECOND // 10),
            " Level record: its events were expected to cost 2.00%; the trial cost more. " + ELSE,
        ),
        (
            chosen(20_000_000, 80_000_000, dense=b"flow"),
            " Level flow: its events were expected to cost 2.00%, those of level record 8.00%. "
            + ELSE,
        ),
        (
            chosen(44_000_000, 150_000_000, dense_ns=SECOND // 10),
            " Level record: even the events of level flow were expected to cost 4.40%. " + ELSE,
        ),
    ],
)
def test_the_reason_of_a_chosen_level_is_told(text: str, sentence: str) -> None:
    assert text.endswith(sentence)


def test_the_share_for_events_is_that_of_the_recorder() -> None:
    found = re.search(r"#define ROOM ([0-9.]+)", SOURCE.read_text())
    assert found is not None
    assert float(found[1]) == EVENTS_PART

# SPDX-License-Identifier: GPL-2.0-only
"""Hostile captures, definitions, recordings and streams: a sample of what `make fuzz` does in full.

A fault is named with its number: `python tests/fuzz/driver.py KIND --first NUMBER --count 1`.
"""

import os
from pathlib import Path

import pytest

from tlstax.tests.fuzz import driver

WORKERS = min(2, os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("captures", 100), ("definitions", 50), ("imports", 50), ("streams", 100)],
)
def test_mutants_are_read_or_refused_in_one_error(kind: str, count: int, tmp_path: Path) -> None:
    outcome = driver.hunt_all(kind, 0, count, WORKERS, tmp_path, is_short=True)
    assert not outcome.faults, "\n".join(map(str, outcome.faults))
    assert count <= outcome.command_count
    assert 0 < outcome.refused_count < outcome.command_count


def test_the_guards_see_what_they_are_for(tmp_path: Path) -> None:
    outcome = driver.hunt("planted", 0, 11, tmp_path, is_short=False)
    expected = (
        *("KeyError", "killed by SIGPROF", "MemoryError", "ended without a word"),
        *("control characters in its output", "control characters in its errors"),
        *("exit status 77", "status 5 with 0 errors", "a traceback", "SIGALRM"),
    )
    assert [fault.number for fault in outcome.faults] == list(range(1, len(expected) + 1))
    for fault, words in zip(outcome.faults, expected, strict=True):
        assert words in fault.what

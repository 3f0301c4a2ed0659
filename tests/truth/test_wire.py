# SPDX-License-Identifier: GPL-2.0-only
"""Boundaries that the kernel's own events tell: reading commands and sending results, every way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Compare = Callable[..., dict[str, tuple[float, float]]]
ROUNDS = 4
UNIT_MS = 10


@pytest.mark.timing(emulated=True)
def test_every_talk_with_the_client_lands_in_its_phase(
    measure: Callable[..., Any], disagreements: Compare, tmp_path: Path
) -> None:
    run = measure("wire", tmp_path / "disk", ROUNDS, UNIT_MS)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    found = {cell: ns for cell, ns in ledger.cells.items() if not cell.startswith("background/")}
    assert disagreements(books["cells"], found, ledger.uncounted_ns) == {}


def test_every_talk_with_the_client_is_counted(measure: Callable[..., Any], tmp_path: Path) -> None:
    run = measure("wire", tmp_path / "disk", ROUNDS, 2)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    assert {phase: ledger.counts.get(phase, 0) for phase in books["counts"]} == books["counts"]
    assert ledger.healed_count == 0
    assert run.losses == {}

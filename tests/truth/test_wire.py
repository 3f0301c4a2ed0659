# SPDX-License-Identifier: GPL-2.0-only
"""Boundaries that the kernel's own events tell: reading commands and sending results, every way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.tests.figures import note
from tlstax.tests.truth.conftest import WAYS

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Compare = Callable[..., dict[str, tuple[float, float]]]
ROUNDS = 4
UNIT_MS = 10
SHORT_RESULT, RECORDS, CLOSE, REMOTE_AFTER, LATE_BODY, LATE_END, PEEKED = 1, 2, 4, 11, 12, 13, 14
BY_SOCKETS = [name for name in WAYS if name.endswith("flow")]


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
    for phase, count in books["counts"].items():
        note(f"{phase}, instances", count, ledger.counts.get(phase, 0))
    assert {phase: ledger.counts.get(phase, 0) for phase in books["counts"]} == books["counts"]
    assert ledger.healed_count == 0
    assert run.losses == {}


@pytest.mark.timing(emulated=True)
@pytest.mark.parametrize("measure", BY_SOCKETS, indirect=True)
@pytest.mark.parametrize(
    "way", [SHORT_RESULT, RECORDS, CLOSE, REMOTE_AFTER, LATE_BODY, LATE_END, PEEKED]
)
def test_a_latency_ends_with_the_answer_and_lacks_every_wait_for_the_client(
    measure: Callable[..., Any], tmp_path: Path, way: int
) -> None:
    """The thread works on after its answer, and the client lets it wait for the next command."""
    run = measure("wire", tmp_path / "disk", ROUNDS, UNIT_MS, way)
    (books,) = run.books
    assert run.ledger(books["tid"]).counts["command"] == books["counts"]["command"] == ROUNDS
    told, found = books["latency_ns"], run.latencies_ns["command"]
    note("latency, ns", told, found, 0.08 * told)
    assert run.latencies_ns["command"] == pytest.approx(books["latency_ns"], rel=0.08)


@pytest.mark.timing(emulated=True)
@pytest.mark.parametrize("measure", BY_SOCKETS, indirect=True)
def test_waiting_for_the_first_command_is_idle(
    measure: Callable[..., Any], disagreements: Compare, tmp_path: Path
) -> None:
    run = measure("wire", tmp_path / "disk", 1, 4 * UNIT_MS, SHORT_RESULT)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    found = {cell: ns for cell, ns in ledger.cells.items() if not cell.startswith("background/")}
    assert found["idle/blocked_network"] > 3 * UNIT_MS * 1_000_000
    assert disagreements(books["cells"], found, ledger.uncounted_ns) == {}

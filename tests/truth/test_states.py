# SPDX-License-Identifier: GPL-2.0-only
"""Spins, sleeps, futexes, sockets, disk: each is found in its phase and state, at its length."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.tests.figures import note

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Compare = Callable[..., dict[str, tuple[float, float]]]
ROUNDS = 3
UNIT_MS = 20


@pytest.mark.timing(emulated=True)
def test_every_wait_and_spin_lands_in_its_phase_and_state(
    measure: Callable[..., Any], disagreements: Compare, emulated_cpu: bool, tmp_path: Path
) -> None:
    run = measure("states", tmp_path / "disk", ROUNDS, UNIT_MS)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    # Before its first boundary the thread is in the background; the books begin a little later.
    found = {cell: ns for cell, ns in ledger.cells.items() if not cell.startswith("background/")}
    assert disagreements(books["cells"], found, ledger.uncounted_ns) == {}
    assert ledger.phase_ns("background") < (25_000_000 if emulated_cpu else 5_000_000)


def test_every_phase_is_counted_as_often_as_it_happened(
    measure: Callable[..., Any], tmp_path: Path
) -> None:
    run = measure("states", tmp_path / "disk", ROUNDS, 2)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    for phase, count in books["counts"].items():
        note(f"{phase}, instances", count, ledger.counts.get(phase, 0))
    assert ledger.counts == books["counts"]
    assert ledger.healed_count == 0
    assert run.losses == {}


@pytest.mark.timing(emulated=True)
def test_the_ledger_closes_to_the_threads_own_clocks(
    measure: Callable[..., Any], tmp_path: Path, emulated_cpu: bool
) -> None:
    run = measure("states", tmp_path / "disk", ROUNDS, UNIT_MS)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    lifetime = books["end_ns"] - books["start_ns"]
    ready = sum(ns for cell, ns in books["cells"].items() if cell.endswith("/runnable"))
    assert sum(ledger.cells.values()) == ledger.lifetime_ns
    assert ledger.lifetime_ns >= lifetime
    # A thread may wait for a CPU before its first and after its last look at the clock, and on an
    # emulated CPU long enough after each wait to count.
    kept = ledger.lifetime_ns - ledger.state_ns("runnable")
    most = 0.05 if emulated_cpu else 0.01
    note("lifetime, ns", lifetime - ready, kept, max(most * (lifetime - ready), 2_000_000))
    assert kept == pytest.approx(lifetime - ready, rel=most, abs=2_000_000)
    ran_ns = ledger.state_ns("on_cpu") - ledger.uncounted_ns
    note("on_cpu, ns", books["cpu_ns"], ran_ns, max(0.02 * books["cpu_ns"], 2_000_000))
    assert ran_ns == pytest.approx(books["cpu_ns"], rel=0.02, abs=2_000_000)


@pytest.mark.timing(emulated=True)
def test_waiting_for_a_cpu_is_runnable(measure: Callable[..., Any], disagreements: Compare) -> None:
    run = measure("runnable", 100)
    assert len(run.books) == 2
    for books in run.books:
        ledger = run.ledger(books["tid"])
        assert disagreements(books["cells"], ledger.cells, ledger.uncounted_ns, hiccups=0) == {}


def test_threads_that_never_serve_are_background(measure: Callable[..., Any]) -> None:
    run = measure("threads", 3, 2000)
    assert len(run.books) == 3
    for books in run.books:
        ledger = run.ledger(books["tid"])
        note("background, ns", ledger.lifetime_ns, ledger.phase_ns("background"))
        assert ledger.phase_ns("background") == ledger.lifetime_ns

# SPDX-License-Identifier: GPL-2.0-only
"""Ways out of a phase that no exit probe sees: longjmp, a thread's end, fork; nothing drifts."""

from collections.abc import Callable
from typing import Any

import pytest

from tlstax.probes.model import Level
from tlstax.tests.figures import note

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Compare = Callable[..., dict[str, tuple[float, float]]]
TOLERATED_NS = 1_000_000
ROUNDS = 30
NESTED = 3  # record_write frames that each jump leaves behind


def served(ledger: Any) -> dict[str, int]:
    """The cells without the moments before the first boundary."""
    return {cell: ns for cell, ns in ledger.cells.items() if not cell.startswith("background/")}


@pytest.mark.timing(emulated=True)
def test_longjmp_out_of_nested_phases_leaves_no_drift(
    measure: Callable[..., Any], disagreements: Compare
) -> None:
    run = measure("longjmp", ROUNDS, 2)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    assert disagreements(books["cells"], served(ledger), ledger.uncounted_ns) == {}


def test_what_was_healed_is_counted_and_its_time_is_uncertain(measure: Callable[..., Any]) -> None:
    run = measure("longjmp", ROUNDS, 2)
    (books,) = run.books
    ledger = run.ledger(books["tid"])
    if run.level == Level.FLOW:  # which has none of those phases: nothing is left open
        assert (ledger.healed_count, ledger.uncertain_ns, run.losses) == (0, 0, {})
    else:
        note("healed", NESTED * ROUNDS, ledger.healed_count)
        assert ledger.healed_count == NESTED * ROUNDS == run.losses["healed"]
        assert 0 < ledger.uncertain_ns <= ledger.phase_ns("record_write")
        assert ledger.counts["record_read"] == books["counts"]["record_read"]
    assert ledger.counts["command"] == books["counts"]["command"]


@pytest.mark.timing(emulated=True)
def test_a_thread_that_ends_inside_nested_phases_is_complete(
    measure: Callable[..., Any], disagreements: Compare
) -> None:
    run = measure("exit", 20, 3)
    assert len(run.books) == 20
    for books in run.books:
        ledger = run.ledger(books["tid"])
        found = served(ledger)
        last = "command" if run.level == Level.FLOW else "record_write"
        assert disagreements(books["cells"], found, ledger.uncounted_ns, last=last) == {}


def test_a_thread_that_has_ended_is_known_to_its_last_nanosecond(
    measure: Callable[..., Any],
) -> None:
    run = measure("exit", 5, 1)
    assert len(run.books) == 5
    for books in run.books:
        ledger = run.ledger(books["tid"])
        assert ledger.exited
        note("lifetime, ns", ledger.lifetime_ns, sum(ledger.cells.values()))
        assert sum(ledger.cells.values()) == ledger.lifetime_ns


@pytest.mark.timing(emulated=True)
def test_a_child_that_is_forked_inside_a_phase_takes_none_of_it(
    measure: Callable[..., Any], disagreements: Compare
) -> None:
    run = measure("fork", 5)
    _, parent = sorted(run.books, key=lambda books: books["name"])
    ledger = run.ledger(parent["tid"])
    assert disagreements(parent["cells"], served(ledger), ledger.uncounted_ns) == {}


def test_a_forked_child_has_no_account(measure: Callable[..., Any]) -> None:
    run = measure("fork", 1)
    child, parent = sorted(run.books, key=lambda books: books["name"])
    assert (child["name"], parent["name"]) == ("tt-child", "tt-fork")
    assert child["tid"] not in run.ledgers
    assert run.ledger(parent["tid"]).counts["command"] == 2


def short_threads(run: Any) -> list[Any]:
    """Accounts of the threads that the scenario starts."""
    found = [ledger for ledgers in run.ledgers.values() for ledger in ledgers]
    return [ledger for ledger in found if ledger.name == "tt-short"]


def test_many_short_threads_are_all_found(measure: Callable[..., Any]) -> None:
    run = measure("threads", 300, 100)
    note("threads", len(run.books), len(short_threads(run)))
    assert len(run.books) == len(short_threads(run)) == 300
    assert all(ledger.exited for ledger in short_threads(run))
    assert run.losses == {}


@pytest.mark.timing(emulated=True)
def test_short_threads_have_their_time(measure: Callable[..., Any], emulated_cpu: bool) -> None:
    run = measure("threads", 300, 300)
    short = short_threads(run)
    told = sum(books["cpu_ns"] for books in run.books)
    measured = sum(ledger.state_ns("on_cpu") for ledger in short)
    # A thread's own CPU clock is read before its end, which costs it some 20 us more, and
    # an emulated one a millisecond.
    stolen = sum(abs(ledger.uncounted_ns) for ledger in short)
    least = 0.95 * told - TOLERATED_NS - stolen  # the tolerance of every truth
    assert least <= measured <= (4 if emulated_cpu else 1.25) * told + stolen

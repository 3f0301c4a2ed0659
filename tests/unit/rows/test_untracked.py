# SPDX-License-Identifier: GPL-2.0-only
"""Threads without an account: their number and CPU time stand at the head of a report."""

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.terminal import trust
from tlstax.analysis.report.terminal.console import screen
from tlstax.analysis.rows import untracked
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Ledger, Loss, ProcessClock, Thread, Window

MS, S = 1_000_000, 1_000_000_000


def recorded(*windows: tuple[int, int, int], level: str = "full") -> Tables:
    """Windows of 1 s: threads of the process, those without room, and ms of CPU time of these."""
    made = Tables()
    made.threads.append(Thread(1, 11, "a", "connection", 0, None))
    for number, (threads, lacking, cpu_ms) in enumerate(windows, start=1):
        made.windows.append(Window(number, None, (number - 1) * S, number * S, level=level))
        made.ledger.append(Ledger(number, 1, "command", "on_cpu", 600 * MS))
        counts = (number, (600 + cpu_ms) * MS, 600 * MS, 0, 9, 9, 0)
        clock = ProcessClock(*counts, threads, threads - lacking, lacking)
        made.process_clocks.append(clock)
    return made


def test_a_process_whose_threads_are_all_in_the_ledger_has_no_such_line() -> None:
    made = recorded((5, 0, 0), (5, 0, 1))
    assert untracked.find(made) is None
    assert untracked.role_lines(made, {1, 2}) == []


def test_their_cpu_time_is_that_of_the_windows_in_which_there_were_any() -> None:
    windows = (5, 0, 7), (20, 15, 200), (22, 17, 400), (5, 0, 100), (5, 0, 50)
    found = untracked.find(recorded(*windows))
    assert found is not None
    assert (found.thread_count, found.process_thread_count) == (17, 22)
    # They lived for a part of the fourth window, too, but not in the first and the last.
    assert found.cpu_ns == 700 * MS
    assert found.cpu_share == pytest.approx(700 / (5 * 600 + 757))


def test_what_one_edge_adds_the_next_one_takes_off() -> None:
    found = untracked.find(recorded((20, 15, 300), (20, 15, -100), (20, 15, 200), (20, 15, -100)))
    assert found is not None
    assert found.cpu_ns == 300 * MS


def test_the_head_and_the_roles_tell_what_is_missing() -> None:
    made = recorded((10_001, 1, 0), (20_001, 10_001, 400))
    made.losses.append(Loss(1, "thread_slots_full", 10_001))
    document = to_json(explain.explain(made))
    first = document["health"]["warnings"][0]
    assert first.startswith("10,001 of 20,001 threads found no room in the ledger: 400 ms of CPU")
    assert "--max-threads" in first
    assert not any("Lost:" in text for text in document["health"]["warnings"])
    (bar,) = document["ledgers"]
    assert [(line["role"], line["thread_count"]) for line in bar["roles"]] == [
        ("connection", 1),
        ("untracked", 10_001),
    ]
    console = screen(None)
    with console.capture() as captured:
        console.print(trust.render(document["health"], 100))
    text = " ".join(captured.get().split())
    assert "10,001 of 20,001 are not in the ledger, with 25.0 % of the CPU time" in text

# SPDX-License-Identifier: GPL-2.0-only
"""The truth program's own books, without any probe: they are what everything else is held to."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., list[dict[str, Any]]]
UNIT_MS = 10
UNIT_NS = UNIT_MS * 1_000_000
COMMANDS = 11


def threads(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == "thread"]


@pytest.mark.timing
def test_every_wait_lasts_as_long_as_it_was_asked_to(run_alone: Run, tmp_path: Path) -> None:
    (books,) = threads(run_alone("states", tmp_path / "disk", 1, UNIT_MS))
    cells = books["cells"]
    at_least = {
        "connect/on_cpu": 1,
        "connect/blocked_network": 0.9,
        "idle/blocked_network": 0.9 * COMMANDS,
        "idle/blocked_futex": 0.9,
        "record_read/on_cpu": 0.5 * COMMANDS,
        "command/on_cpu": 1,
        "command/blocked_other": 1.9,
        "command/blocked_futex": 1.7,
        "command/blocked_lock": 0.9,
        "command/blocked_network": 2.7,
        "command/blocked_disk": 0.5,
        "record_write/on_cpu": 0.5,
        "disconnect/on_cpu": 1,
        "disconnect/blocked_other": 0.9,
    }
    for cell, units in at_least.items():
        assert cells[cell] >= units * UNIT_NS, cell
    assert books["counts"]["command"] == COMMANDS


@pytest.mark.timing(emulated=True)
def test_the_books_leave_little_out(run_alone: Run, tmp_path: Path) -> None:
    (books,) = threads(run_alone("states", tmp_path / "disk", 1, UNIT_MS))
    lifetime = books["end_ns"] - books["start_ns"]
    assert 0.95 * lifetime <= sum(books["cells"].values()) <= 1.01 * lifetime


@pytest.mark.timing(emulated=True)
def test_two_threads_on_one_cpu_wait_for_each_other(run_alone: Run) -> None:
    first, second = threads(run_alone("runnable", 50))
    for books in (first, second):
        assert books["cells"]["background/on_cpu"] >= 50_000_000
    waited = first["cells"]["background/runnable"] + second["cells"]["background/runnable"]
    assert waited >= 50_000_000


def test_handshakes_end_as_they_were_asked_to(run_alone: Run) -> None:
    lines = run_alone("tls", "sbmrdivnuca")
    handshakes = [line for line in lines if line["kind"] == "handshake"]
    outcomes = Counter(line["outcome"] for line in handshakes)
    assert outcomes == {"success": 6, "failure": 4, "abandoned": 1}
    assert [line["resumed"] for line in handshakes if line["letter"] == "r"] == [1]

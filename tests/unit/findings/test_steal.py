# SPDX-License-Identifier: GPL-2.0-only
"""Stolen CPU time, on computed windows: no program in a guest can make any (docs/findings.md)."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.tests.unit.findings.loads import MODES, MS, found, load, sentence


def stolen(mode: str, steal_of_ten: int, idle_of_ten: int = 0, wait: int = 0) -> Tables:
    """A server that computes all the time, or waits (ms of a second) for its clients."""
    cells = {
        ("command", "on_cpu"): (1000 - wait) * MS,
        ("command", "blocked_network"): wait * MS,
    }
    rows = load(mode, cells, {"command": 1000})
    busy_of_ten = 10 - steal_of_ten - idle_of_ten
    rows.system = [
        row._replace(
            cpu_user_ns=row.cpu_user_ns * busy_of_ten // 10,
            cpu_steal_ns=row.cpu_user_ns * steal_of_ten // 10,
            cpu_idle_ns=row.cpu_user_ns * idle_of_ten // 10,
        )
        for row in rows.system
        for row in (row._replace(cpu_user_ns=row.cpu_user_ns or row.cpu_idle_ns, cpu_idle_ns=0),)
    ]
    return rows


@MODES
def test_stolen_time_is_named_with_the_hosts_share_and_the_servers(mode: str) -> None:
    rows = stolen(mode, 3)
    assert found(rows)[0] == "steal"
    assert "it takes 30 % of all CPU time, and 30 % of the server's time" in sentence(rows, "steal")


@MODES
@pytest.mark.parametrize(
    ("steal", "idle", "wait", "expected"),
    [(2, 0, 0, True), (1, 0, 0, False), (0, 0, 0, False), (1, 8, 0, True), (2, 0, 600, False)],
)
def test_it_counts_as_a_part_of_what_was_asked_for_and_of_the_servers_running(
    mode: str, steal: int, idle: int, wait: int, expected: bool
) -> None:
    """One tenth of an idle host's time is half of what was asked for."""
    assert ("steal" in found(stolen(mode, steal, idle, wait))) is expected

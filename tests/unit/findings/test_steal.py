# SPDX-License-Identifier: GPL-2.0-only
"""Stolen CPU time, on computed windows: no program in a guest can make any (docs/findings.md)."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import ProcessClock
from tlstax.tests.unit.findings.loads import MODES, MS, dense, found, load, sentence


def stolen(mode: str, steal_of_ten: int, wait: int = 0, host_of_ten: float | None = None) -> Tables:
    """A server that computes all the time, or waits (ms of a second) for its clients.

    `steal_of_ten`: tenths of its time on CPUs that were stolen; `host_of_ten`: of the host's.
    """
    cells = {
        ("command", "on_cpu"): (1000 - wait) * MS,
        ("command", "blocked_network"): wait * MS,
    }
    rows = load(mode, cells, {"command": 1000})
    host = steal_of_ten if host_of_ten is None else host_of_ten
    rows.system = [
        row._replace(
            cpu_user_ns=round(row.cpu_user_ns * (10 - host) / 10),
            cpu_steal_ns=round(row.cpu_user_ns * host / 10),
        )
        for row in rows.system
        for row in (row._replace(cpu_user_ns=row.cpu_user_ns or row.cpu_idle_ns, cpu_idle_ns=0),)
    ]
    for window in dense(rows):
        spent_ns = (window.end_ns - window.start_ns) * (1000 - wait) // 1000
        steal_ns = spent_ns * steal_of_ten // 10
        rows.process_clocks.append(
            ProcessClock(
                window.window_id, spent_ns - steal_ns, spent_ns - steal_ns, 0, 1, 1, steal_ns,
                1, 1, 0, 0,
            )
        )  # fmt: skip
    return rows


@MODES
def test_stolen_time_is_named_with_the_hosts_share_and_the_servers(mode: str) -> None:
    rows = stolen(mode, 3)
    assert found(rows)[0] == "steal"
    assert "it takes 30 % of all CPU time, and 30 % of the server's time" in sentence(rows, "steal")


@MODES
@pytest.mark.parametrize(
    ("steal", "wait", "host", "expected"),
    [(2, 0, None, True), (1, 0, None, False), (0, 0, None, False), (2, 600, None, False),
     (0, 0, 5, False), (4, 0, 0.2, True), (4, 0, 0, False)],
)  # fmt: skip
def test_it_is_the_servers_own_time_that_counts(
    mode: str, steal: int, wait: int, host: float | None, expected: bool
) -> None:
    """A host that lost half of its CPUs says nothing of a server that lost none of its time."""
    assert ("steal" in found(stolen(mode, steal, wait, host))) is expected

# SPDX-License-Identifier: GPL-2.0-only
"""Sums of the ledger and operations, on hand-made rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax.analysis.rows import ledger, operations
from tlstax.analysis.rows.roles import tabulate
from tlstax.collectors.capture.schema import Ledger, PhaseCount, Run, Thread
from tlstax.collectors.capture.vocabulary import PHASES, STATES

KEYS = st.tuples(st.sampled_from(PHASES), st.sampled_from(STATES))
LEDGERS = st.lists(
    st.builds(
        lambda window, thread, key, ns: Ledger(window, thread, key[0], key[1], ns),
        st.integers(1, 3),
        st.integers(1, 4),
        KEYS,
        st.integers(0, 10**12),
    ),
    max_size=40,
)


def run(driver: str, scenario: str, connections: int, finished: int) -> Run:
    return Run(1, driver, scenario, "tls", 0, 0, 9, 2, connections, finished, 5, 6, 7, 8, "{}")


@given(rows=LEDGERS)
def test_every_way_of_summing_gives_the_same_total(rows: list[Ledger]) -> None:
    everything = sum(row.time_ns for row in rows)
    windows = {1, 2, 3}
    assert sum(ledger.totals(rows, windows).values()) == everything
    for sums in (
        ledger.by_window(rows),
        ledger.by_role(rows, [Thread(1, 9, "a", "connection", 0, None)], windows),
    ):
        assert sum(sum(part.values()) for part in sums.values()) == everything
    totals = ledger.totals(rows, windows)
    unserved = ledger.phase_time(totals, ledger.UNSERVED_PHASES)
    assert sum(ledger.served(totals).values()) + unserved == everything


def test_threads_are_summed_by_what_they_are_for() -> None:
    threads = [
        Thread(1, 9, "a", "connection", 0, None),
        Thread(2, 8, "a", "connection", 0, None),
        Thread(3, 7, "b", "purge", 0, None),
    ]
    rows = [
        Ledger(1, 1, "record_read", "on_cpu", 3),
        Ledger(1, 2, "command", "on_cpu", 4),
        Ledger(1, 2, "idle", "blocked_network", 50),
        Ledger(1, 3, "background", "blocked_disk", 6),
        Ledger(1, 4, "background", "on_cpu", 1),
        Ledger(2, 3, "background", "on_cpu", 100),
    ]
    connection, unknown, purge = tabulate(rows, threads, {1})
    assert (connection.role, connection.thread_count) == ("connection", 2)
    assert (connection.on_cpu_ns, connection.tls_ns, connection.idle_ns) == (7, 3, 50)
    assert connection.blocked_ns == {}, "idle waits are not among them"
    assert (unknown.role, unknown.meaning) == ("unknown", "")
    assert purge.blocked_ns == {"blocked_disk": 6}
    assert purge.meaning


def test_totals_are_in_vocabulary_order_and_of_the_windows_asked_for() -> None:
    rows = [
        Ledger(1, 1, "command", "runnable", 3),
        Ledger(1, 1, "connect", "on_cpu", 1),
        Ledger(1, 2, "command", "on_cpu", 2),
        Ledger(2, 2, "command", "on_cpu", 100),
        Ledger(1, 2, "a_later_phase", "on_cpu", 5),
    ]
    assert list(ledger.totals(rows, {1}).items()) == [
        (("connect", "on_cpu"), 1),
        (("command", "on_cpu"), 2),
        (("command", "runnable"), 3),
        (("a_later_phase", "on_cpu"), 5),
    ]


@pytest.mark.parametrize(
    ("given_run", "name"),
    [
        (run("storm", "connect_query", 1000, 1000), "connection"),
        (run("pooled", "oltp_point_select", 4, 100_000), "query"),
        (run("pooled", "oltp_read_only", 4, 5000), "transaction"),
        (run("pooled", "oltp_read_only", 4, 0), "transaction"),
    ],
)
def test_what_an_operation_is(given_run: Run, name: str) -> None:
    assert operations.operation_name([given_run]) == name


def test_per_operation() -> None:
    assert operations.operation_name([]) == ""
    assert operations.per_operation(10, 4) == 2.5
    assert operations.per_operation(10, 0) is None
    rows = [PhaseCount(1, "handshake", 2), PhaseCount(2, "handshake", 3), PhaseCount(9, "sign", 1)]
    assert operations.phase_counts(rows, {1, 2}) == {"handshake": 5}

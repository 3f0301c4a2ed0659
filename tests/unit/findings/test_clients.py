# SPDX-License-Identifier: GPL-2.0-only
"""Causes in recorded clients: named as far as they explain the server's waits, silent else."""

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.unit.findings.loads import MODES, MS, PER_SECOND, found, load, storm


def with_client(rows: Tables, sign: int, work: int) -> Tables:
    """A client that computes so long (ns) in each of its connections."""
    cells = {("sign", "on_cpu"): sign * PER_SECOND, ("handshake", "on_cpu"): work * PER_SECOND}
    ended = {"connect": PER_SECOND, "handshake": PER_SECOND}
    rows.clients = load("always", cells, ended)
    return rows


@MODES
@pytest.mark.parametrize(
    ("wait", "other", "expected"),
    [(50 * MS, 50 * MS, "round_trips"), (9 * MS, MS // 2, "client_idle")],
)
def test_a_key_that_is_a_small_part_of_the_wait_is_no_cause(
    mode: str, wait: int, other: int, expected: str
) -> None:
    """It led before round trips of 50 ms, and stood beside a client that computes little."""
    rows = with_client(storm(mode, wait=wait, other=other), 2 * MS, MS)
    names = found(rows)
    assert "client_key" not in names
    assert expected in names


@MODES
def test_an_expensive_key_of_the_client_counts_as_much_as_it_takes(mode: str) -> None:
    rows = with_client(storm(mode, wait=9 * MS), 5 * MS, MS)
    findings = {one.id: one for one in explain.explain(rows).findings}
    assert {"client_key", "client_crypto"} <= findings.keys()
    share = findings["client_key"].share.value
    assert share == pytest.approx(findings["client_crypto"].share.value * 5 / 9, rel=0.02)
    assert "the server waits for it in 4" in findings["client_key"].sentence


@MODES
@pytest.mark.parametrize(
    ("connections", "expected"), [(0, False), (1, False), (19, False), (20, True)]
)
def test_clients_that_hardly_connect_do_not_hide_that_handshakes_wait_for_one(
    mode: str, connections: int, expected: bool
) -> None:
    """Recorded was a client with a pool, and another one connects: nothing at all was named."""
    rows = with_client(storm(mode, wait=9 * MS), 5 * MS, MS)
    assert rows.clients is not None
    rows.clients.phase_counts = [
        row._replace(ended_count=connections if row.window_id == 1 else 0)
        for row in rows.clients.phase_counts
    ]
    names = {name for name in found(rows) if name.startswith("client_")}
    assert (names == {"client_waits"}) is not expected
    assert ("client_key" in names) is expected
    note = explain.explain(rows).findings_note
    assert ("recorded clients opened fewer than 20 connections" in note) is not expected

# SPDX-License-Identifier: GPL-2.0-only
"""Real handshakes through the system's libssl: 23 give 23 records, and each says how it went."""

from collections.abc import Callable
from typing import Any

import pytest

from tlstax.tests.figures import note

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

TLS13 = 0x0304
SUB_PHASES = ("handshake", "sign", "keygen", "derive", "verify", "certificate")
COUNT = 23


def pairs(run: Any) -> list[tuple[dict[str, Any], Any]]:
    """What the program said of each handshake, with its record; one thread serves one."""
    records = {record.tid: record for record in run.records}
    assert len(records) == len(run.records)
    assert len(run.handshakes) == len(records) > 0
    return [(told, records[told["tid"]]) for told in run.handshakes]


def test_23_handshakes_give_23_records(
    measure: Callable[..., Any], outcome_counts: Callable[..., Any]
) -> None:
    run = measure("tls", "s" * COUNT)
    note("records", COUNT, len(run.records))
    assert outcome_counts(run.records) == {"success": COUNT}
    assert run.losses == {}
    assert len(run.books) == COUNT
    for books in run.books:
        counts = run.ledger(books["tid"]).counts
        assert (counts["handshake"], counts["connect"]) == (1, 1)


def test_outcomes(measure: Callable[..., Any]) -> None:
    run = measure("tls", "svnucasbvnuca")
    outcomes = {"success": (0,), "failure": (1,), "abandoned": (2,)}
    note("records", len(run.handshakes), len(run.records))
    assert len(run.records) == len(run.handshakes)
    for told, record in pairs(run):
        # Of a client that hangs up the library leaves no trace but "wants to read": it ends when
        # the server frees the connection, as one that was given up does.
        allowed = (1, 2) if told["letter"] == "c" else outcomes[told["outcome"]]
        assert record.outcome in allowed, told


def test_parameters_come_from_the_handshake_itself(measure: Callable[..., Any]) -> None:
    run = measure("tls", "smrv")
    for told, record in pairs(run):
        if told["letter"] == "v":
            assert (record.tls_version, record.cipher_id, record.resumed) == (-1, -1, -1)
            continue
        assert record.tls_version == TLS13
        assert record.cipher_id & 0xFFFF == 0x1302  # TLS_AES_256_GCM_SHA384
        assert record.resumed == told["resumed"]
        assert record.call_count == told["call_count"]
        assert record.group.decode().lower() == told["group_name"]


def test_the_group_is_the_one_that_was_agreed(measure: Callable[..., Any]) -> None:
    run = measure("tls", "ss", "P-256")
    for _, record in pairs(run):
        assert record.group.decode() in {"P-256", "prime256v1", "secp256r1"}


@pytest.mark.timing
def test_a_record_lasts_from_the_first_call_to_success(measure: Callable[..., Any]) -> None:
    run = measure("tls", "sbmrdsdd")
    for told, record in pairs(run):
        books = next(books for books in run.books if books["tid"] == told["tid"])
        # The thread may lose the CPU between its own clock and the call.
        ready = books["cells"].get("handshake/runnable", 0)
        wall = told["end_ns"] - told["start_ns"]
        tolerated = 1_000_000 + 0.05 * wall + ready
        assert told["start_ns"] <= record.start_ns <= record.end_ns <= told["end_ns"]
        assert record.end_ns - record.start_ns == pytest.approx(wall, abs=tolerated)
        assert sum(record.state_ns) == pytest.approx(wall, abs=tolerated)


@pytest.mark.timing
def test_waits_between_the_calls_belong_to_the_handshake(measure: Callable[..., Any]) -> None:
    run = measure("tls", "ddda")
    for told, record in pairs(run):
        books = next(books for books in run.books if books["tid"] == told["tid"])
        ledger = run.ledger(told["tid"])
        waited = books["cells"]["handshake/blocked_network"]
        assert waited > 15_000_000
        for found in (record.state_ns[2], ledger.cells["handshake/blocked_network"]):
            assert found == pytest.approx(waited, rel=0.05, abs=1_000_000)


def test_a_wait_between_the_calls_is_none_of_connecting(measure: Callable[..., Any]) -> None:
    run = measure("tls", "da")
    for told, record in pairs(run):
        assert 1 <= record.network_wait_count <= told["wait_count"]
        assert "connect/blocked_network" not in run.ledger(told["tid"]).cells


@pytest.mark.timing(emulated=True)
def test_the_handshake_phase_is_what_the_program_spent_in_it(measure: Callable[..., Any]) -> None:
    run = measure("tls", "smbsmb" * 3)
    told = sum(
        ns for books in run.books for cell, ns in books["cells"].items() if "handshake/" in cell
    )
    found = sum(run.ledger(books["tid"]).phase_ns(*SUB_PHASES) for books in run.books)
    note("handshake, ns", told, found, max(0.05 * told, 1_000_000))
    assert found == pytest.approx(told, rel=0.05, abs=1_000_000)


def test_private_key_and_key_exchange_have_their_own_time(measure: Callable[..., Any]) -> None:
    run = measure("tls", "m" * COUNT)
    assert len(run.books) == COUNT
    for phase in SUB_PHASES[1:]:
        spent = [run.ledger(books["tid"]).phase_ns(phase) for books in run.books]
        assert all(spent), phase


def test_a_handshake_inside_of_a_read_is_a_handshake(
    measure: Callable[..., Any], outcome_counts: Callable[..., Any]
) -> None:
    run = measure("tls", "isi")
    assert outcome_counts(run.records) == {"success": 3}

# SPDX-License-Identifier: GPL-2.0-only
"""Waits while clients connect: for the client, for its network, or for a service."""

import pytest

from tlstax.collectors.capture.schema import Frame, Metric, OffcpuStack, Stack
from tlstax.tests.unit.findings.loads import MODES, MS, SECONDS, S, dense, found, storm

LOOKUP = {
    "name_lookup": "__res_context_send",
    "external_authentication": "pam_authenticate",
}


@MODES
@pytest.mark.parametrize("name", LOOKUP)
def test_a_slow_service_is_no_round_trip_of_the_client(mode: str, name: str) -> None:
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    assert "round_trips" in found(rows)
    rows.frames = [Frame(1, "libc.so.6", "", 0, LOOKUP[name], 0, "dynsym", "")]
    rows.stacks = [Stack(1, "1")]
    rows.waits = [
        OffcpuStack(window.window_id, "connect", "blocked_network", 7, 1, None, 9, S)
        for window in dense(rows)
    ]
    assert "round_trips" not in found(rows)
    assert name in found(rows)


@MODES
@pytest.mark.parametrize(("rtt_us", "name"), [(15_000, "round_trips"), (40, "late_clients")])
def test_clients_that_answer_late_are_no_round_trips(mode: str, rtt_us: int, name: str) -> None:
    """TCP knows the round trip; a client that is short of CPU answers as one far away does."""
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    assert "round_trips" in found(rows), "not measured"
    rows.metrics = [
        Metric((second + 1) * S, S, "sockets", "connections", key, value)
        for second in SECONDS
        for key, value in {
            "open_count": 2,
            "round_trip_count": 2,
            "round_trip_us": 2 * rtt_us,
        }.items()
    ]
    assert {"round_trips", "late_clients"} & {*found(rows)} == {name}


@MODES
def test_a_plug_in_that_waits_for_its_client_waits_for_no_service(mode: str) -> None:
    """It reads the client's answers itself, which come late over a long distance."""
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    rows.frames = [
        Frame(1, "/usr/sbin/mariadbd", "", 0, "vio_read_buff", 0, "dynsym", ""),
        Frame(2, "/usr/lib/mysql/plugin/auth_pam.so", "", 0, "pam_auth", 0, "symtab", ""),
    ]
    rows.stacks = [Stack(1, "1 2")]
    rows.waits = [
        OffcpuStack(window.window_id, "connect", "blocked_network", 7, 1, None, 9, S)
        for window in dense(rows)
    ]
    assert "external_authentication" not in found(rows)
    assert "round_trips" in found(rows)


@MODES
def test_a_wait_in_the_resolver_is_no_round_trip_although_its_stack_ends_there(mode: str) -> None:
    """As recorded with a name server that answers in 20 ms: the stack is `poll` alone."""
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    rows.frames = [
        Frame(1, "/usr/lib/x86_64-linux-gnu/libc.so.6", "", 0, "poll", 0, "dynsym", ""),
        Frame(2, "/usr/sbin/mariadbd", "", 0, "vio_socket_io_wait", 0, "dynsym", ""),
    ]
    rows.stacks = [Stack(1, "1"), Stack(2, "1 2")]
    rows.waits = [
        OffcpuStack(window.window_id, phase, "blocked_network", 7, stack, None, 9, S)
        for window in dense(rows)
        for phase, stack in (("connect", 1), ("handshake", 2))
    ]
    assert "library_wait" in found(rows)
    assert "round_trips" not in found(rows)
    rows.waits = [row._replace(user_stack_id=1) for row in rows.waits]
    assert "library_wait" not in found(rows), "no stack can be followed"
    assert "round_trips" in found(rows)

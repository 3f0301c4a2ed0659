# SPDX-License-Identifier: GPL-2.0-only
"""Causes that were named wrongly on real servers, in both modes: silent, or right."""

import pytest

from tlstax.collectors.capture.schema import (
    Frame,
    Ledger,
    SampleStack,
    Stack,
    Status,
    Thread,
)
from tlstax.tests.unit.findings.loads import (
    MODES,
    MS,
    PER_SECOND,
    SECONDS,
    S,
    acknowledged,
    dense,
    found,
    in_parts,
    load,
    sentence,
    starved,
    storm,
)

# ---- false causes ----


@MODES
def test_a_pause_of_the_client_is_no_timer_of_tcp(mode: str) -> None:
    """A fixed pause of 42 ms on loopback; the counters are those of a real recording."""
    rows = acknowledged(storm(mode, wait=42 * MS), 0.75)
    assert "constant_wait" not in found(rows)
    assert "may be a pause" in sentence(rows, "constant_pause")


def test_a_timer_is_seen_in_the_wall_times_of_handshakes_that_were_not_followed() -> None:
    """Most of them; the few that were followed show that messages came in parts."""
    rows = in_parts(acknowledged(storm("budget", wait=42 * MS), 3.0))
    kept = {window.window_id for window in dense(rows)}
    rows.handshakes = [
        row
        if row.window_id in kept
        else row._replace(
            on_cpu_ns=-1, runnable_ns=-1, blocked_network_ns=-1, blocked_other_ns=-1,
            network_wait_count=0,
        )
        for row in rows.handshakes
    ]  # fmt: skip
    assert "constant_wait" in found(rows)
    rows.handshakes = [row for row in rows.handshakes if row.on_cpu_ns < 0]
    assert "constant_wait" not in found(rows), "no handshake was followed"
    assert "constant_pause" in found(rows)


def test_acknowledgements_count_only_where_handshakes_were_recorded() -> None:
    """Of a busy server only samples are taken between dense windows."""
    rows = acknowledged(storm("budget", wait=42 * MS), 0.75)
    rows.windows = [
        window._replace(level="sample") if window.level == "handshake" else window
        for window in rows.windows
    ]
    kept = {window.window_id for window in dense(rows)}
    rows.handshakes = [row for row in rows.handshakes if row.window_id in kept]
    assert "constant_wait" not in found(rows)
    assert "constant_pause" in found(rows)


@MODES
def test_a_timer_of_tcp_has_its_acknowledgements(mode: str) -> None:
    rows = in_parts(acknowledged(storm(mode, wait=42 * MS), 3.0))
    assert found(rows)[0] == "constant_wait"
    assert "constant_pause" not in found(rows)
    assert "client_waits" not in found(rows)


@MODES
def test_a_pause_of_the_client_is_no_timer_however_many_acknowledgements(mode: str) -> None:
    """As recorded: 1.1 delayed acknowledgements for each pause of 42 ms behind a relay."""
    rows = acknowledged(storm(mode, wait=42 * MS), 1.2)
    assert "constant_wait" not in found(rows)
    assert "constant_pause" in found(rows)


@MODES
def test_a_pause_of_uncertain_length_is_still_a_wait_for_the_client(mode: str) -> None:
    """As recorded: 42 ms for most of the time, and longer for some of it: neither was found."""
    rows = storm(mode, wait=42 * MS)
    rows.handshakes = [
        row._replace(blocked_network_ns=70 * MS, start_ns=row.end_ns - 71 * MS)
        if row.end_ns // S % 4 == 0
        else row
        for row in rows.handshakes
    ]
    assert not {"constant_wait", "constant_pause"} & {*found(rows)}
    assert "client_waits" in found(rows)


@MODES
def test_nobody_knows_whether_a_client_computes_that_was_not_recorded(mode: str) -> None:
    rows = storm(mode, wait=9 * MS)
    assert "client_crypto" not in found(rows)
    assert "does not show whether" in sentence(rows, "client_waits")


@MODES
def test_a_slow_library_is_no_long_key(mode: str) -> None:
    rows = storm(mode, sign=7 * MS)
    rows.targets = [rows.targets[0]._replace(tls_library="yaSSL", tls_version="unknown")]
    assert "rsa_key_size" not in found(rows)
    assert "does not show that the key is long" in sentence(rows, "slow_signature")


@MODES
def test_a_quota_is_no_neighbour(mode: str) -> None:
    rows = starved(mode)
    rows.system = [
        row._replace(quota_period_count=10, throttled_period_count=9) for row in rows.system
    ]
    assert found(rows) == ["cpu_quota"]


@MODES
def test_a_quota_that_may_hold_the_server_back_hides_no_wait_for_cpus(mode: str) -> None:
    """As recorded: throttled in 0.6 of the periods, 0.2 to 1.0: nothing was found at all."""
    rows = starved(mode)
    rows.system = [
        row._replace(quota_period_count=10, throttled_period_count=(2, 9, 9)[at // 2 % 3])
        for at, row in enumerate(rows.system)
    ]
    assert found(rows) == ["cpu_quota_at_times"]
    assert "the quota's is not measured" in sentence(rows, "cpu_quota_at_times")


@MODES
def test_who_uses_the_cpus_is_said_where_a_server_waits_for_them(mode: str) -> None:
    text = sentence(starved(mode), "run_queue")
    assert "uses 0.5 CPUs itself, everything else on the host 0.5" in text
    assert "not the cause" not in text


@MODES
def test_the_command_that_ends_a_connection_is_no_query(mode: str) -> None:
    """PHP's five queries and COM_QUIT were six, and the bound is below 6."""
    rows = storm(mode, queries=5, wait=20 * MS)
    assert "connections_not_reused" in found(rows)
    assert "each executes 5 commands" in sentence(rows, "connections_not_reused")


@MODES
def test_short_connections_may_resume_too(mode: str) -> None:
    rows = storm(mode, queries=2, sign=MS // 2)
    rows.status = [Status(at * S, None, "Ssl_session_cache_mode", "SERVER") for at in SECONDS]
    assert {"connections_not_reused", "no_resumption"} <= set(found(rows))


@MODES
@pytest.mark.parametrize(("role", "expected"), [("page_flush", False), ("connection", True)])
def test_a_page_cleaner_reads_nothing_for_queries(mode: str, role: str, expected: bool) -> None:
    rows = load(mode, {("command", "on_cpu"): 300 * MS}, {"command": 1000})
    rows.threads.append(Thread(2, 10, "two", role, 0, None))
    rows.ledger += [
        Ledger(window.window_id, 2, "tde", "on_cpu", (window.end_ns - window.start_ns) // 2)
        for window in dense(rows)
    ]
    assert ("tde_reads" in found(rows)) is expected


@MODES
def test_locks_do_not_acquit_tls(mode: str) -> None:
    """TLS 34 % of the time and locks 27 %: both figures stand in the sentence."""
    cells = {
        ("command", "on_cpu"): 390 * MS,
        ("command", "blocked_lock"): 270 * MS,
        ("handshake", "on_cpu"): 340 * MS,
    }
    rows = load(mode, cells, {"command": 1000, "handshake": 30, "connect": 30})
    text = sentence(rows, "table_lock")
    assert "not the problem" not in text
    assert "TLS takes 34 %" in text


@MODES
@pytest.mark.parametrize(("sign", "expected"), [(130_000, True), (2 * MS, False), (20_000, True)])
def test_method_fetch_is_compared_with_the_signature(mode: str, sign: int, expected: bool) -> None:
    rows = storm(mode, sign=sign)
    rows.frames = [
        Frame(1, "libcrypto.so.3", "", 0, "EVP_CIPHER_fetch", 0, "dynsym", ""),
        Frame(2, "mariadbd", "", 0, "dispatch_command", 0, "dynsym", ""),
    ]
    rows.stacks = [Stack(1, "1"), Stack(2, "2")]
    rows.samples = [
        SampleStack(window.window_id, "handshake", -1, stack, None, count)
        for window in dense(rows)
        for stack, count in ((1, 10), (2, 30))
    ]
    assert ("fetch_over_signature" in found(rows)) is expected


@MODES
@pytest.mark.parametrize(("refused", "expected"), [(0, False), (5, True)])
def test_refused_connections_are_counted_against_those_that_came(
    mode: str, refused: int, expected: bool
) -> None:
    """RFC 6298: each is tried again after a second; one in a hundred adds 10 ms to the mean."""
    rows = storm(mode)
    lengths = {window.window_id: window.end_ns - window.start_ns for window in rows.windows}
    rows.system = [
        row._replace(listen_drop_count=10 * refused * lengths[row.window_id] // S)
        for row in rows.system
    ]
    assert ("listen_overflow" in found(rows)) is expected
    if expected:
        text = sentence(rows, "listen_overflow")
        dropped = sum(
            row.listen_drop_count or 0
            for row, window in zip(rows.system, rows.windows, strict=True)
            if window.level == "full"
        )
        assert f"{dropped} in the time with a ledger" in text
        assert "the server's queue" not in text, "the kernel counts all queues together"
    rows.system = [row._replace(listen_drop_count=None) for row in rows.system]
    assert "listen_overflow" not in found(rows), "not read"


@MODES
@pytest.mark.parametrize(("check", "expected"), [(200_000, False), (2 * MS, True)])
def test_certificates_are_named_where_checking_them_takes_more_than_all_else(
    mode: str, check: int, expected: bool
) -> None:
    rows = storm(mode)
    rows.ledger += [
        Ledger(window.window_id, 1, "verify", "on_cpu",
               PER_SECOND * check * (window.end_ns - window.start_ns) // S)
        for window in dense(rows)
    ]  # fmt: skip
    assert ("client_checks" in found(rows)) is expected


@MODES
def test_clients_that_connect_and_leave_are_no_round_trips(mode: str) -> None:
    """As recorded with bursts of connections that say nothing for 100 ms: round trips, 90 %."""
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    assert "round_trips" in found(rows)
    assert "no_handshake" not in found(rows)
    rows.phase_counts = [
        row._replace(ended_count=2 * row.ended_count) if row.phase == "connect" else row
        for row in rows.phase_counts
    ]
    assert "round_trips" not in found(rows)
    text = sentence(rows, "no_handshake")
    assert text.startswith("50 % of all connections make no TLS handshake")
    assert "not measured" in text


@MODES
def test_clients_that_hesitate_before_they_speak_are_no_round_trips(mode: str) -> None:
    """As recorded with a full queue: 20 ms before the request for TLS, 2 ms in a handshake."""
    assert "round_trips" in found(storm(mode, wait=6 * MS, other=20 * MS))
    assert "round_trips" not in found(storm(mode, wait=2 * MS, other=20 * MS))


@MODES
def test_a_few_checks_of_health_hide_no_round_trips(mode: str) -> None:
    """Clients that are 40 ms away, and 17 % of the connections are health checks of this host."""
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    rows.phase_counts = [
        row._replace(ended_count=row.ended_count * 6 // 5) if row.phase == "connect" else row
        for row in rows.phase_counts
    ]
    assert "round_trips" in found(rows)
    assert "no_handshake" not in found(rows)


@MODES
def test_an_uncertain_share_without_handshakes_hides_no_round_trips(mode: str) -> None:
    """By the estimate it is above the bound, by its range it is not."""
    rows = storm(mode, wait=12 * MS, other=40 * MS)
    seconds = {window.window_id: window.start_ns // S for window in rows.windows}
    rows.phase_counts = [
        row._replace(ended_count=row.ended_count * (1 if seconds[row.window_id] % 3 else 5))
        if row.phase == "connect"
        else row
        for row in rows.phase_counts
    ]
    assert "no_handshake" not in found(rows)
    assert "round_trips" in found(rows)


def test_refused_connections_between_dense_windows_are_not_divided_by_those_within() -> None:
    rows = storm("budget")
    kept = {window.window_id for window in dense(rows)}
    rows.system = [
        row._replace(listen_drop_count=0 if row.window_id in kept else 10) for row in rows.system
    ]
    assert "listen_overflow" not in found(rows)

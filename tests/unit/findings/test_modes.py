# SPDX-License-Identifier: GPL-2.0-only
"""Findings are the same in both modes; a short recording says what it lacks."""

from collections.abc import Callable

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.edges import followed
from tlstax.collectors.capture.schema import (
    Frame,
    SampleStack,
    Stack,
    Status,
)
from tlstax.tests.unit.findings.loads import (
    MODES,
    MS,
    PER_SECOND,
    SECONDS,
    S,
    as_recorded,
    dense,
    found,
    load,
    resumed_at_times,
    sentence,
    starved,
    storm,
)

# ---- counters and metrics over the same time ----


@MODES
@pytest.mark.parametrize(("size", "expected"), [(1000, True), (16_000, False)])
def test_bytes_of_a_write_do_not_depend_on_the_mode(mode: str, size: int, expected: bool) -> None:
    cells = {("record_write", "on_cpu"): 800 * MS, ("command", "on_cpu"): 200 * MS}
    rows = load(mode, cells, {"command": 100, "record_write": 20_000})
    rows.status = [Status(at * S, None, "Bytes_sent", str(at * 20_000 * size)) for at in SECONDS]
    rows.frames = [Frame(1, "libcrypto.so.3", "", 0, "AES_encrypt", 0, "dynsym", "")]
    rows.stacks = [Stack(1, "1")]
    rows.samples = [SampleStack(w.window_id, "record_write", -1, 1, None, 30) for w in dense(rows)]
    assert ("tiny_records" in found(rows)) is (expected and mode != "flow")
    note = explain.explain(as_recorded(rows)).findings_note
    assert ("results are sent in tiny records (--level record)" in note) is (mode == "flow")
    if expected and mode != "flow":
        assert "1,000 bytes each" in sentence(rows, "tiny_records")


@MODES
@pytest.mark.parametrize(("locked_ms", "expected"), [(60, False), (700, True)])
def test_the_time_in_row_locks_is_that_of_the_ledger(
    mode: str, locked_ms: int, expected: bool
) -> None:
    """6 % of the time in row locks were called 60 %, because the counter runs all the time."""
    cells = {("command", "on_cpu"): 300 * MS, ("command", "blocked_futex"): 700 * MS}
    rows = load(mode, cells, {"command": 1000})
    rows.status = [
        Status(at * S, None, "Innodb_row_lock_time", str(locked_ms * at)) for at in SECONDS
    ]
    assert ("row_lock" in found(rows)) is expected


@MODES
def test_a_long_key_is_found_by_the_signatures_of_all_handshakes(mode: str) -> None:
    rows = storm(mode, sign=5 * MS)
    assert found(rows)[0] == "rsa_key_size"
    (finding, *_) = explain.explain(rows).findings
    count = next(one.value for one in finding.evidence if one.name == "handshakes_count")
    assert count == sum(
        PER_SECOND * (window.end_ns - window.start_ns) // S for window in rows.windows
    )


@MODES
@pytest.mark.parametrize("signed_of", [5 / 4, 10])
@pytest.mark.parametrize(
    ("library", "key", "expected"),
    [
        ("OpenSSL", "", "rsa_key_size"),
        ("OpenSSL", "RSA 4096", "long_key"),
        ("yaSSL", "", "slow_signature"),
    ],
)
def test_resumed_sessions_hide_no_signature(
    mode: str, library: str, key: str, expected: str, signed_of: float
) -> None:
    """They sign in 0 ns. Where 9 of 10 did, the mean of all was 0.5 ms and the key was silent."""
    rows = resumed_at_times(storm(mode, sign=5 * MS), signed_of)
    rows.targets = [rows.targets[0]._replace(tls_library=library)]
    rows.status = [Status(S, None, "certificate/key", key)]
    assert expected in found(rows)
    made = explain.explain(as_recorded(rows)).findings
    (finding,) = (one for one in made if one.id == expected)
    numbers = {one.name: one.value for one in finding.evidence}
    assert numbers["sign_ns"] == pytest.approx(5 * MS, rel=0.02), "of those that signed"
    assert numbers["signatures_count"] == sum(row.sign_ns > 0 for row in rows.handshakes)
    cpu_ns = 5 * MS / signed_of
    assert finding.share.value == pytest.approx(cpu_ns / (cpu_ns + 2.36 * MS), rel=0.03), "of all"


@MODES
def test_a_few_signatures_are_no_proof_of_a_long_key(mode: str) -> None:
    """Hundreds of handshakes, of which 16 signed: in each block of windows the same part."""
    rows = resumed_at_times(storm(mode, sign=50 * MS), len(storm(mode).handshakes) / 16)
    assert sum(row.sign_ns > 0 for row in rows.handshakes) == 16
    assert "rsa_key_size" not in found(rows)


def test_given_up_handshakes_that_signed_are_signatures() -> None:
    """No phase ends with them: signatures were too few, and each one seemed to take longer."""
    rows = storm("always", sign=900_000)
    rows.ledger = [
        row._replace(time_ns=row.time_ns * 2) if row.phase == "sign" else row for row in rows.ledger
    ]
    rows.handshakes += [
        row._replace(handshake_id=-row.handshake_id - 1, outcome="abandoned")
        for row in rows.handshakes
    ]
    assert "rsa_key_size" not in found(rows)


def with_failures(rows: tables.Tables) -> tables.Tables:
    """Of five handshakes four fail before they sign; they end as the others do."""
    rows.handshakes += [
        row._replace(handshake_id=-row.handshake_id - 1, outcome="failure", sign_ns=0)
        for row in rows.handshakes
        for _ in range(4)
    ]
    rows.phase_counts = [
        row._replace(ended_count=5 * row.ended_count) if row.phase == "handshake" else row
        for row in rows.phase_counts
    ]
    return rows


def test_failed_handshakes_do_not_shorten_the_signature_of_the_others() -> None:
    """Most of them have not signed."""
    assert "rsa_key_size" in found(with_failures(storm("budget", sign=5 * MS)))


@MODES
def test_signatures_of_handshakes_that_fail_count_like_those_of_others(mode: str) -> None:
    """Clients refuse the certificate of 19 in 20: in dense windows the key was 3 % of the time."""
    rows = storm(mode, sign=5 * MS)
    rows.handshakes = [
        row if row.handshake_id % 20 == 0 else row._replace(outcome="failure")
        for row in rows.handshakes
    ]
    made = explain.explain(as_recorded(rows)).findings
    (finding,) = (one for one in made if one.id == "rsa_key_size")
    assert finding.share.value == pytest.approx(5 / 7.36, rel=0.03)
    numbers = {one.name: one.value for one in finding.evidence}
    assert numbers["signatures_count"] == len(rows.handshakes)


@MODES
def test_what_signing_costs_a_handshake_is_a_mean_of_all_that_end(mode: str) -> None:
    """Four of five fail before they sign; checking certificates has the same denominator."""
    rows = with_failures(storm(mode, sign=5 * MS))
    rows.ledger += [row._replace(phase="verify") for row in rows.ledger if row.phase == "sign"]
    rows.ledger = [
        row._replace(time_ns=6 * row.time_ns // 5) if row.phase == "verify" else row
        for row in rows.ledger
    ]
    made = explain.explain(as_recorded(rows)).findings
    (finding,) = (one for one in made if one.id == "client_checks")
    numbers = {one.name: one.value for one in finding.evidence}
    assert numbers["sign_handshake_ns"] == pytest.approx(MS, rel=0.02)
    assert numbers["checking_ns"] == pytest.approx(6 * MS / 5, rel=0.02)


def test_handshakes_that_are_given_up_do_not_lengthen_the_signature_of_others() -> None:
    """Wall times are long on a busy host, so that the ledger's mean counts: 0.7 ms, not 1.4."""
    rows = storm("budget", sign=700_000)
    rows.handshakes = [row._replace(sign_ns=6 * MS) for row in rows.handshakes]
    rows.handshakes += [
        row._replace(handshake_id=-row.handshake_id - 1, outcome="abandoned", sign_ns=0)
        for row in rows.handshakes
    ]
    assert "rsa_key_size" not in found(rows)


def test_handshakes_that_are_given_up_do_not_stand_for_records_that_were_lost() -> None:
    """Half of the records are lost, and as many handshakes given up: not 1.4 ms a signature."""
    rows = storm("always", sign=700_000)
    rows.handshakes = [
        row._replace(outcome="abandoned", sign_ns=0) if row.handshake_id % 2 else row
        for row in rows.handshakes
    ]
    assert "rsa_key_size" not in found(rows)


@pytest.mark.parametrize("with_handshakes", [1, 0])
def test_a_long_key_is_found_though_few_dense_windows_have_a_handshake(
    with_handshakes: int,
) -> None:
    """RSA-4096 stayed silent with 440 handshakes recorded, each with an exact signature."""
    rows = storm("budget", sign=5 * MS)
    empty = {window.window_id for window in dense(rows)[with_handshakes:]}
    rows.phase_counts = [
        row for row in rows.phase_counts if row.phase != "handshake" or row.window_id not in empty
    ]
    rows.ledger = [row for row in rows.ledger if row.phase != "sign" or row.window_id not in empty]
    assert "rsa_key_size" in found(rows)


def test_waits_for_a_cpu_inside_of_signatures_are_no_long_key() -> None:
    """Wall times of signatures hold preemptions: only the short ones are near the CPU time."""
    rows = storm("budget", sign=300_000)
    rows.handshakes = [
        row._replace(sign_ns=6 * MS if row.handshake_id % 5 else 300_000) for row in rows.handshakes
    ]
    assert "rsa_key_size" not in found(rows)


# ---- handshakes that were not followed ----


def test_a_handshake_that_began_before_a_dense_window_has_no_parts() -> None:
    rows = storm("budget", wait=20 * MS)
    made = followed.with_known_parts(rows.handshakes, rows.windows)
    windows = {window.window_id: window for window in rows.windows}
    for row in made:
        window = windows[row.window_id]
        inside = window.level == "full" and row.start_ns >= window.start_ns
        assert (row.on_cpu_ns >= 0) is inside
        assert row.sign_ns == 40_000, "operations are exact"
    assert {row.on_cpu_ns >= 0 for row in made} == {True, False}


def test_neighbouring_windows_are_one_time() -> None:
    rows = storm("always", wait=20 * MS)
    made = followed.with_known_parts(rows.handshakes, rows.windows)
    assert sum(row.on_cpu_ns < 0 for row in made) == 1, "the one that began before the recording"


# ---- what a short recording lacks ----


def test_a_short_recording_says_how_long_it_must_be() -> None:
    rows = starved("budget")
    rows.windows = rows.windows[:4]
    made = explain.explain(rows)
    assert made.findings == []
    assert "2 windows with a ledger" in made.findings_note
    assert "at least 4 s like this, or with --budget none" in made.findings_note


def test_a_cause_near_its_bound_is_named_as_uncertain() -> None:
    """The same load was found in one recording and not in the next, without a word."""
    rows = starved("always")
    varied = [(0, 1), (1, 2), (9, 9)]
    rows.ledger = [
        row._replace(time_ns=row.time_ns * varied[at // 2 % 3][0] // varied[at // 2 % 3][1])
        if row.state == "runnable"
        else row
        for at, row in enumerate(rows.ledger)
    ]
    made = explain.explain(rows)
    assert made.findings == []
    assert "Not certain" in made.findings_note
    assert "the server waits for CPUs" in made.findings_note
    assert "has an interval from 48 s like this on" in made.findings_note, "windows of a second"


Maker = Callable[[str], tables.Tables]


@MODES
@pytest.mark.parametrize(
    "healthy",
    [
        lambda mode: load(mode, {("command", "on_cpu"): 300 * MS}, {"command": 1000}),
        lambda mode: load(mode, {("idle", "blocked_network"): S}, {"command": 1}),
        lambda mode: starved(mode, 100),
        lambda mode: storm(mode, queries=500),
    ],
    ids=["busy", "idle", "queued a little", "pooled"],
)
def test_healthy_loads_have_no_cause(mode: str, healthy: Maker) -> None:
    assert found(healthy(mode)) == []


def test_fragments_of_windows_are_no_proof_and_no_doubt() -> None:
    """Three real windows and many of 20 ms: too few, and the note says how long it must be."""
    rows = starved("budget")
    long = [window for window in rows.windows if window.level == "full"][:3]
    kept = {window.window_id for window in long}
    rows.windows = [
        window._replace(end_ns=window.start_ns + 5 * MS)
        if window.level == "full" and window.window_id not in kept
        else window
        for window in rows.windows
    ]
    made = explain.explain(rows)
    assert made.findings == []
    assert "3 windows with a ledger" in made.findings_note


def test_a_block_without_the_end_of_a_handshake_is_split_like_all_of_them() -> None:
    """Its waits were called no waits of 40 ms, although no handshake ended to tell."""
    rows = storm("budget", wait=42 * MS)
    second_block = range(3 * S, 5 * S)
    followed_by = {window.window_id for window in rows.windows if window.start_ns in second_block}
    rows.handshakes = [row for row in rows.handshakes if row.window_id not in followed_by]
    assert "constant_pause" in found(rows)

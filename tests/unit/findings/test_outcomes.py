# SPDX-License-Identifier: GPL-2.0-only
"""Causes in how handshakes end and in what they agree on, in both modes."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Handshake, Probe, Status
from tlstax.tests.unit.findings.loads import MODES, MS, S, found, sentence, storm

FAILURES = {
    "failed_handshakes", "certificate_refused", "nothing_in_common", "expired_certificate",
    "refused_by_clients", "refused_by_server",
}  # fmt: skip


def changed(rows: Tables, every: int, **change: object) -> Tables:
    """One handshake in `every` is otherwise."""

    def other(number: int, row: Handshake) -> Handshake:
        return row._replace(**change) if number % every == 0 else row  # type: ignore[arg-type]

    rows.handshakes = [other(number, row) for number, row in enumerate(rows.handshakes)]
    return rows


def failing(mode: str, signed_of_ten: int, every: int = 3, **status: str) -> Tables:
    """A third of the handshakes fail, so many of ten of them after the signature."""
    rows = changed(storm(mode, wait=MS), every, outcome="failure")
    failed = [at for at, row in enumerate(rows.handshakes) if row.outcome == "failure"]
    for number, at in enumerate(failed):
        if number % 10 >= signed_of_ten:
            rows.handshakes[at] = rows.handshakes[at]._replace(sign_ns=0)
    rows.meta["created_wall_ns"] = str(1_700_000_000 * 10**9)
    rows.status = [Status(S, None, f"certificate/{name}", value) for name, value in status.items()]
    return rows


def given_up(rows: Tables, wait_ns: int) -> None:
    """As many more handshakes, of a second each; the others wait so long."""
    rows.handshakes += [
        row._replace(
            handshake_id=-row.handshake_id - 1, outcome="abandoned", sign_ns=0,
            start_ns=row.end_ns - S, blocked_network_ns=S,
        )
        for row in rows.handshakes
    ]  # fmt: skip
    rows.ledger = [
        row._replace(time_ns=row.time_ns * (wait_ns + S) // wait_ns)
        if (row.phase, row.state) == ("handshake", "blocked_network")
        else row
        for row in rows.ledger
    ]


@MODES
def test_handshakes_that_fail_are_named_with_their_count_and_their_time(mode: str) -> None:
    rows = failing(mode, 5, every=4)
    assert "failed_handshakes" in found(rows)
    assert "abandoned_handshakes" not in found(rows)
    failed = sum(row.outcome == "failure" for row in rows.handshakes)
    text = sentence(rows, "failed_handshakes")
    assert text.startswith(f"TLS handshakes fail: {25} %")
    assert f"({failed} failed; 0 more were given up)" in text


@MODES
def test_handshakes_that_are_given_up_are_no_failures(mode: str) -> None:
    rows = changed(storm(mode, wait=MS), 3, outcome="abandoned")
    assert "abandoned_handshakes" in found(rows)
    assert "failed_handshakes" not in found(rows)


@MODES
def test_a_few_failures_beside_many_that_are_given_up_name_these(mode: str) -> None:
    """Health checks hang up, and one client refuses the certificate: no failure of a tenth."""
    rows = changed(failing(mode, 10, every=19), 4, outcome="abandoned")
    assert sum(row.outcome == "failure" for row in rows.handshakes) > 20
    assert "abandoned_handshakes" in found(rows)
    assert not FAILURES & {*found(rows)}


@MODES
@pytest.mark.parametrize("outcome", ["failure", "abandoned"])
def test_one_failure_in_twenty_is_no_cause(mode: str, outcome: str) -> None:
    rows = changed(storm(mode, wait=MS), 20, outcome=outcome)
    assert not {*FAILURES, "abandoned_handshakes"} & {*found(rows)}


@MODES
def test_failures_of_one_second_in_twelve_are_no_cause(mode: str) -> None:
    rows = storm(mode, wait=MS)
    rows.handshakes = [
        row._replace(outcome="failure") if row.end_ns < 2_000_000_000 else row
        for row in rows.handshakes
    ]
    assert not FAILURES & {*found(rows)}


@MODES
def test_long_handshakes_that_are_given_up_are_no_constant_time_of_the_others(mode: str) -> None:
    """The others wait 42 ms each, these a second: they were called waits of 42 ms, too."""
    rows = storm(mode, wait=42 * MS)
    assert "constant_pause" in found(rows)
    given_up(rows, 42 * MS)
    assert "constant_pause" not in found(rows)
    assert "abandoned_handshakes" in found(rows)
    # Its mean is of both kinds, as its time is: it was all of it divided by the others.
    assert "the client: 521 ms in each" in sentence(rows, "client_waits")


@MODES
def test_a_constant_time_of_handshakes_that_fail_is_one(mode: str) -> None:
    """Four of five fail after 42 ms: their waits were of all, and not of those of 42 ms."""
    rows = storm(mode, wait=42 * MS)
    rows.handshakes = [
        row._replace(outcome="failure") if number % 5 else row
        for number, row in enumerate(rows.handshakes)
    ]
    assert "constant_pause" in found(rows)


@MODES
def test_time_of_handshakes_that_are_given_up_is_none_that_a_pool_saves(mode: str) -> None:
    """The others execute five queries each."""
    rows = storm(mode, queries=5)
    assert "connections_not_reused" in found(rows)
    given_up(rows, MS)
    rows.phase_counts = [
        row._replace(ended_count=2 * row.ended_count)
        if row.phase in ("connect", "disconnect")
        else row
        for row in rows.phase_counts
    ]
    assert "connections_not_reused" not in found(rows)
    assert "abandoned_handshakes" in found(rows)


@MODES
def test_a_handshake_that_is_given_up_is_one_that_was_made(mode: str) -> None:
    """As many as the others: it was said that half of the connections make none."""
    rows = storm(mode, wait=20 * MS, other=40 * MS)
    rows.handshakes += [
        row._replace(handshake_id=-row.handshake_id - 1, outcome="abandoned")
        for row in rows.handshakes
    ]
    rows.phase_counts = [
        row._replace(ended_count=2 * row.ended_count) if row.phase == "connect" else row
        for row in rows.phase_counts
    ]
    assert "abandoned_handshakes" in found(rows)
    assert "no_handshake" not in found(rows)


@MODES
@pytest.mark.parametrize("outcome", ["failure", "abandoned"])
def test_connections_whose_handshake_fails_are_none_that_could_be_kept_open(
    mode: str, outcome: str
) -> None:
    """Half of them fail, the others execute 8 queries each: it was said that each executes 3.5."""
    rows = storm(mode, queries=8)
    assert "connections_not_reused" not in found(rows)
    rows.handshakes += [
        row._replace(handshake_id=-row.handshake_id - 1, outcome=outcome) for row in rows.handshakes
    ]
    more = {"connect", "disconnect"} | ({"handshake"} if outcome == "failure" else set())
    rows.phase_counts = [
        row._replace(ended_count=2 * row.ended_count) if row.phase in more else row
        for row in rows.phase_counts
    ]
    assert "connections_not_reused" not in found(rows)


@MODES
def test_clients_that_never_get_as_far_as_a_query_need_no_pool(mode: str) -> None:
    rows = changed(storm(mode), 1, outcome="failure")
    rows.phase_counts = [row for row in rows.phase_counts if row.phase != "command"]
    assert found(rows)
    assert "connections_not_reused" not in found(rows)


@MODES
def test_an_old_version_is_named_and_a_current_one_is_not(mode: str) -> None:
    assert "old_version" not in found(storm(mode))
    assert "old_version" not in found(changed(storm(mode), 1, tls_version="TLSv1.2"))
    assert "old_version" not in found(changed(storm(mode), 1, tls_version="unknown"))
    rows = changed(storm(mode), 2, tls_version="TLSv1.1")
    assert "old_version" in found(rows)
    assert "50 %" in sentence(rows, "old_version")


@MODES
@pytest.mark.parametrize(
    ("library", "expected"), [("yaSSL", True), ("OpenSSL", False), ("wolfSSL", False)]
)
def test_a_library_without_tls_12_has_an_old_version_though_none_was_recorded(
    mode: str, library: str, expected: bool
) -> None:
    """As recorded: 1,059 handshakes of MySQL 5.6, all of an unknown version, and nothing said."""
    rows = changed(storm(mode), 1, tls_version="unknown")
    rows.targets = [rows.targets[0]._replace(tls_library=library, tls_version="unknown")]
    assert ("old_version" in found(rows)) is expected
    if expected:
        assert "100 % of the handshakes" in sentence(rows, "old_version")


@MODES
@pytest.mark.parametrize(
    ("signed", "expected"),
    [(10, "certificate_refused"), (9, "certificate_refused"), (5, "failed_handshakes"),
     (1, "nothing_in_common"), (0, "nothing_in_common")],
)  # fmt: skip
def test_how_far_failing_handshakes_had_come_is_named(
    mode: str, signed: int, expected: str
) -> None:
    assert FAILURES & {*found(failing(mode, signed))} == {expected}


@MODES
@pytest.mark.parametrize(
    ("begins", "ends", "expected"),
    [
        ("1600000000", "1699999999", "expired_certificate"),
        ("1600000000", "1700000000", "certificate_refused"),
        ("1600000000", "1800000000", "certificate_refused"),
        ("1700000001", "1800000000", "certificate_refused"),
        ("1600000000", "no number", "certificate_refused"),
        ("1600000000", "9" * 19, "certificate_refused"),
    ],
)
def test_an_expired_certificate_is_named_by_its_own_date(
    mode: str, begins: str, ends: str, expected: str
) -> None:
    rows = failing(mode, 10, not_before=begins, not_after=ends)
    assert FAILURES & {*found(rows)} == {expected}
    if expected == "expired_certificate":
        assert "its last day was 2023-11-14" in sentence(rows, expected)


@MODES
def test_a_certificate_that_was_renewed_but_not_loaded_has_expired(mode: str) -> None:
    """MySQL tells the dates of the one that it uses; the file has another one."""
    rows = failing(mode, 10, not_before="1600000000", not_after="1800000000")
    for name, value in (
        ("not_before", "Nov 14 22:13:19 2022 GMT"),
        ("not_after", "Nov 14 22:13:19 2023 GMT"),
    ):
        rows.status.append(Status(S, None, f"Ssl_server_{name}", value))
    assert "its last day was 2023-11-14" in sentence(rows, "expired_certificate")
    rows.status[-1] = rows.status[-1]._replace(value="Nov 14 22:13:20 2023 GMT")
    assert "certificate_refused" in found(rows), "valid in its last second"


@MODES
def test_an_expired_certificate_without_failures_is_no_cause(mode: str) -> None:
    """Clients that do not verify certificates connect."""
    rows = failing(mode, 10, every=20, not_before="1600000000", not_after="1699999999")
    assert not FAILURES & {*found(rows)}


@MODES
@pytest.mark.parametrize("how", ["yaSSL", "RSA key exchange", "no signature recorded"])
def test_nothing_is_said_where_a_missing_signature_means_nothing(mode: str, how: str) -> None:
    rows = failing(mode, 0)
    if how == "yaSSL":
        rows.targets = [rows.targets[0]._replace(tls_library="yaSSL")]
    elif how == "RSA key exchange":
        rows.handshakes[1] = rows.handshakes[1]._replace(cipher="AES256-GCM-SHA384")
    else:
        rows.handshakes = [row._replace(sign_ns=0) for row in rows.handshakes]
    assert FAILURES & {*found(rows)} == {"failed_handshakes"}


def checked(rows: Tables, of_ten: int, others_of_ten: int = 0) -> Tables:
    """The server has begun to check the client's certificate in so many of ten failures.

    `others_of_ten`: and of the other handshakes.
    """
    failed = sum(row.outcome == "failure" for row in rows.handshakes)
    count = (failed * of_ten + (len(rows.handshakes) - failed) * others_of_ten) // 10
    rows.probes = [
        Probe(1, "peer_certificate", "enter", "X509_STORE_CTX_set_ex_data", "libcrypto", "", 0,
              "sub $8, %rsp", "uprobe", 0, count, 0.0, 1, count)
    ]  # fmt: skip
    return rows


@MODES
@pytest.mark.parametrize(
    ("signed", "of_ten", "expected"),
    [
        (10, 0, "refused_by_clients"),
        (10, 4, "refused_by_clients"),
        (0, 0, "nothing_in_common"),
        (0, 10, "nothing_in_common"),
    ],
)
def test_the_side_that_refuses_is_named_by_how_far_the_server_came(
    mode: str, signed: int, of_ten: int, expected: str
) -> None:
    assert FAILURES & {*found(checked(failing(mode, signed), of_ten))} == {expected}


@MODES
@pytest.mark.parametrize(
    ("of_ten", "others", "expected"),
    [
        (10, 10, "refused_by_server"),
        (8, 10, "refused_by_server"),
        (5, 10, "certificate_refused"),
        (10, 5, "certificate_refused"),
        (10, 0, "certificate_refused"),
        (0, 10, "certificate_refused"),
        (0, 1, "refused_by_clients"),
    ],
)
def test_checks_in_other_handshakes_are_allowed_for(
    mode: str, of_ten: int, others: int, expected: str
) -> None:
    """A third of the handshakes fail: twice as many do not."""
    assert FAILURES & {*found(checked(failing(mode, 10), of_ten, others))} == {expected}


@MODES
def test_a_server_that_refuses_all_is_named_by_its_checks(mode: str) -> None:
    rows = failing(mode, 10, every=1)
    assert FAILURES & {*found(checked(rows, 10))} == {"refused_by_server"}


@MODES
def test_a_side_is_not_named_where_that_was_not_recorded(mode: str) -> None:
    rows = checked(failing(mode, 10), 0)
    rows.probes = [row._replace(boundary="certificate") for row in rows.probes]
    assert FAILURES & {*found(rows)} == {"certificate_refused"}


@MODES
@pytest.mark.parametrize(
    ("of_ten", "expected"), [(0, "expired_certificate"), (10, "refused_by_server")]
)
def test_a_server_that_refuses_clients_does_not_do_so_because_its_own_certificate_expired(
    mode: str, of_ten: int, expected: str
) -> None:
    rows = failing(mode, 10, not_before="1600000000", not_after="1699999999")
    assert FAILURES & {*found(checked(rows, of_ten, of_ten))} == {expected}

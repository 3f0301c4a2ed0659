# SPDX-License-Identifier: GPL-2.0-only
"""Causes in how handshakes end and in what they agree on, in both modes."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Handshake
from tlstax.tests.unit.findings.loads import BOTH, MS, found, sentence, storm


def changed(rows: Tables, every: int, **change: object) -> Tables:
    """One handshake in `every` is otherwise."""

    def other(number: int, row: Handshake) -> Handshake:
        return row._replace(**change) if number % every == 0 else row  # type: ignore[arg-type]

    rows.handshakes = [other(number, row) for number, row in enumerate(rows.handshakes)]
    return rows


@BOTH
def test_handshakes_that_fail_are_named_with_their_count_and_their_time(mode: str) -> None:
    rows = changed(storm(mode, wait=MS), 4, outcome="failure")
    assert "failed_handshakes" in found(rows)
    assert "abandoned_handshakes" not in found(rows)
    failed = sum(row.outcome == "failure" for row in rows.handshakes)
    text = sentence(rows, "failed_handshakes")
    assert text.startswith(f"TLS handshakes fail: {25} %")
    assert f"({failed} failed, 0 given up)" in text


@BOTH
def test_handshakes_that_are_given_up_are_no_failures(mode: str) -> None:
    rows = changed(storm(mode, wait=MS), 3, outcome="abandoned")
    assert "abandoned_handshakes" in found(rows)
    assert "failed_handshakes" not in found(rows)


@BOTH
@pytest.mark.parametrize("outcome", ["failure", "abandoned"])
def test_one_failure_in_twenty_is_no_cause(mode: str, outcome: str) -> None:
    rows = changed(storm(mode, wait=MS), 20, outcome=outcome)
    assert not {"failed_handshakes", "abandoned_handshakes"} & {*found(rows)}


@BOTH
def test_failures_of_one_second_in_twelve_are_no_cause(mode: str) -> None:
    rows = storm(mode, wait=MS)
    rows.handshakes = [
        row._replace(outcome="failure") if row.end_ns < 2_000_000_000 else row
        for row in rows.handshakes
    ]
    assert "failed_handshakes" not in found(rows)


@BOTH
def test_an_old_version_is_named_and_a_current_one_is_not(mode: str) -> None:
    assert "old_version" not in found(storm(mode))
    assert "old_version" not in found(changed(storm(mode), 1, tls_version="TLSv1.2"))
    assert "old_version" not in found(changed(storm(mode), 1, tls_version="unknown"))
    rows = changed(storm(mode), 2, tls_version="TLSv1.1")
    assert "old_version" in found(rows)
    assert "50 %" in sentence(rows, "old_version")

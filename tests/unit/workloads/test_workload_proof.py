# SPDX-License-Identifier: GPL-2.0-only
"""What a run must prove: sysbench's report, and the three witnesses of each arm."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.model import DriveResult, Latencies
from tlstax.workloads.drivers.sysbench import NEEDED, SysbenchReport
from tlstax.workloads.proof import Evidence
from tlstax.workloads.results import RunTotals
from tlstax.workloads.servers.status import COUNTERS, Status
from tlstax.workloads.tls import TlsChoice

REPORT = """sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Threads started!

tlstax thread=1 connects=20
tlstax thread=0 connects=22
tlstax events=42.000000000
tlstax reads=42.000000000
tlstax writes=0.000000000
tlstax other=0.000000000
tlstax errors=0.000000000
tlstax reconnects=0.000000000
tlstax time_total=2.003855890
tlstax latency_min=0.003376782
tlstax latency_avg=0.006760740
tlstax latency_max=0.016308370
tlstax latency_pct=0.010844028
tlstax latency_sum=4.002358603
"""


def test_a_report_is_read() -> None:
    report = SysbenchReport.parse(REPORT, 2)
    assert report.values["latency_max"] == 0.016308370
    assert report.connects == {0: 22, 1: 20}


@pytest.mark.parametrize("name", NEEDED)
def test_a_report_without_a_line_is_refused(name: str) -> None:
    lines = [line for line in REPORT.splitlines() if f" {name}=" not in line]
    with pytest.raises(TlstaxError, match=f"lacks {name}") as caught:
        SysbenchReport.parse("\n".join(lines), 2)
    assert caught.value.exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lacks events"),
        (REPORT.replace("thread=1", "thread=0"), "connections of every thread"),
        (REPORT.replace("errors=0", "errors=3"), "3 errors"),
        (REPORT.replace("reconnects=0", "reconnects=1"), "1 reconnects"),
        (REPORT.replace("events=42.000000000", "events=nan"), "lacks events"),
        ("FATAL: unable to connect\nAborting\n", "it said: FATAL: unable to connect"),
    ],
)
def test_malformed_reports(text: str, complaint: str) -> None:
    with pytest.raises(TlstaxError, match=complaint):
        SysbenchReport.parse(text, 2)


@given(st.text())
def test_any_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(TlstaxError):
        SysbenchReport.parse(text, 1)


def status(**values: int) -> Status:
    return Status(0, dict.fromkeys(COUNTERS, 0) | values)


BEFORE = status(Connections=10, Ssl_accepts=5, Ssl_finished_accepts=5, Threads_connected=1)
DRIVEN = DriveResult(42, 1, Latencies(1, 1, 1), 42, 1, (1,))
TLS = Evidence(
    label="connect tls, round 1",
    arm="tls",
    choice=TlsChoice(version="TLSv1.3", cipher="TLS_AES_256_GCM_SHA384"),
    driver=DRIVEN,
    before=BEFORE,
    after=status(Connections=52, Ssl_accepts=47, Ssl_finished_accepts=47, Threads_connected=1),
    totals=RunTotals(
        0,
        1,
        handshake_count=42,
        tls_versions={"TLSv1.3": 42},
        ciphers={"TLS_AES_256_GCM_SHA384": 42},
    ),
)
PLAINTEXT = replace(
    TLS,
    label="connect plaintext, round 1",
    arm="plaintext",
    after=replace(BEFORE, values=BEFORE.values | {"Connections": 52}),
    totals=RunTotals(0, 1, handshake_count=0),
)


IN_X25519 = replace(
    TLS,
    choice=replace(TLS.choice, group="X25519"),
    totals=replace(TLS.totals, groups={"X25519": 40, "unknown": 2}),
)


@pytest.mark.parametrize("evidence", [TLS, PLAINTEXT, IN_X25519])
def test_agreeing_witnesses_prove_an_arm(evidence: Evidence) -> None:
    counters = json.loads(evidence.prove())
    assert counters["driver_connections"] == counters["server_connections"] == 42


def test_a_server_that_does_not_count_handshakes_is_no_witness_but_the_others_are() -> None:
    uncounted = replace(TLS, after=PLAINTEXT.after, server_counts=False)
    assert json.loads(uncounted.prove())["server_handshakes"] is None
    with pytest.raises(TlstaxError, match="recorder_handshakes is 41, not 42"):
        replace(uncounted, totals=replace(TLS.totals, handshake_count=41)).prove()


def test_lost_connections_that_are_counted_are_no_objection_and_what_remains_is() -> None:
    lossy = replace(DRIVEN, lost_count=3)
    broken = replace(TLS.totals, handshake_failed_count=3, handshake_count=43)
    lost = replace(
        after(TLS, Aborted_connects=3, Connections=55),
        driver=lossy,
        totals=broken,
        refused={"server": 2},
    )
    counters = json.loads(lost.prove())
    assert (counters["driver_lost"], counters["refused_by_full_queue"]) == (3, {"server": 2})
    with pytest.raises(TlstaxError, match="server_connections is 45, not 42"):
        replace(lost, driver=replace(lossy, lost_count=0)).prove()
    with pytest.raises(TlstaxError, match="recorder saw 41 handshakes of 42 connections"):
        replace(lost, totals=replace(broken, handshake_count=41)).prove()
    with pytest.raises(TlstaxError, match="recorder saw 43 handshakes, not 0"):
        replace(lost, arm="plaintext").prove()


def test_without_a_recorder_driver_and_server_must_agree() -> None:
    unwatched = RunTotals(0, 1, handshake_count=None)
    assert json.loads(replace(TLS, totals=unwatched).prove())["recorder_handshakes"] is None
    with pytest.raises(TlstaxError, match="server_handshakes is 0, not 42"):
        replace(TLS, totals=unwatched, after=PLAINTEXT.after).prove()


def after(evidence: Evidence, **values: int) -> Evidence:
    return replace(evidence, after=replace(evidence.after, values=evidence.after.values | values))


def totals(evidence: Evidence, **values: object) -> Evidence:
    return replace(evidence, totals=replace(evidence.totals, **values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("evidence", "complaint"),
    [
        (after(PLAINTEXT, Ssl_accepts=6), "server_handshakes_begun is 1, not 0"),
        (totals(PLAINTEXT, handshake_count=1), "recorder_handshakes is 1, not 0"),
        (totals(PLAINTEXT, handshake_failed_count=1), "recorder_handshakes_failed is 1, not 0"),
        (totals(PLAINTEXT, tls_call_count=7), "saw 7 TLS calls, not 0"),
        (after(PLAINTEXT, Connections=53), "server_connections is 43, not 42"),
        (after(TLS, Ssl_finished_accepts=46), "server_handshakes is 41, not 42"),
        (after(TLS, Aborted_connects=1), "server_aborted_connects is 1, not 0"),
        (after(TLS, Threads_connected=3), "2 connections are still open"),
        (totals(TLS, handshake_count=41), "recorder_handshakes is 41, not 42"),
        (totals(TLS, lost_handshake_count=1), "recorder_handshakes_lost is 1, not 0"),
        (totals(TLS, resumed_count=2), "recorder_resumed is 2, not 0"),
        (totals(TLS, tls_versions={"TLSv1.2": 42}), r"42 handshakes used version TLSv1\.2, not"),
        (totals(TLS, ciphers={"unknown": 1}), "1 handshakes used cipher unknown, not TLS_AES_256"),
        (totals(IN_X25519, groups={"secp256r1": 2}), "2 handshakes used group secp256r1, not X"),
    ],
)
def test_a_disagreeing_witness_fails_the_run(evidence: Evidence, complaint: str) -> None:
    with pytest.raises(TlstaxError, match=complaint) as caught:
        evidence.prove()
    assert caught.value.exit_code == ExitCode.FAILED
    assert evidence.label in caught.value.what

# SPDX-License-Identifier: GPL-2.0-only
"""The comparison of TLS libraries: exact on hand-made captures, whole in every form."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tlstax.analysis.classify.hot_functions import function_name
from tlstax.analysis.experiment.libraries import ComparedServer, compare_libraries, compared_servers
from tlstax.analysis.experiment.matrix_results import Results
from tlstax.analysis.model.libraries import Libraries
from tlstax.analysis.report.html import libraries as libraries_html
from tlstax.analysis.report.terminal import libraries as libraries_terminal
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import (
    Frame,
    Handshake,
    Ledger,
    Run,
    SampleStack,
    Stack,
    Status,
    Target,
    Window,
)

NAMED = Frame(1, "mysqld", "", 0, "TaoCrypt::AES::encrypt(unsigned char*)", 0, "symtab", "")
NAMELESS = Frame(2, "/lib/libcrypto.so.3", "", 0, "[libcrypto.so.3+0x5]", 0, "none", "aes+ghash")
KB = 1024


class Capture:
    """Runs of one server, added one by one."""

    def __init__(self, version: str = "5.6.24") -> None:
        self.tables = Tables(
            meta={"cpu_flags": "aes sha_ni", "cpu_model": "A CPU", "kernel": "6", "cpu_count": "2"},
            targets=[Target(1, 1, "mysqld", "", "mysql", version, "yaSSL", "unknown", "static")],
            frames=[NAMED, NAMELESS],
            stacks=[Stack(1, "1"), Stack(2, "2")],
        )

    def run(
        self, driver: str, scenario: str, arm: str, number: int, costs: dict[str, int], count: int
    ) -> int:
        """A run with on-CPU time by phase; its window."""
        run_id = len(self.tables.runs) + 1
        row = Run(run_id, driver, scenario, arm, number, 0, 9, 1, 1, count, 50, 0, 0, 0, "{}")
        self.tables.runs.append(row)
        self.tables.windows.append(Window(run_id, run_id, 0, 9))
        for phase, time_ns in costs.items():
            self.tables.ledger.append(Ledger(run_id, 1, phase, "on_cpu", time_ns))
        return run_id

    def sample(self, window: int, phase: str, stack: int, count: int) -> None:
        """Samples in user space."""
        row = SampleStack(window, phase, -1, stack, None, count)
        self.tables.samples = [*self.tables.samples, row]


FACTS = {
    "negotiated": "TLSv1 AES256-SHA",
    "tls_versions": "TLSv1 TLSv1.1",
    "x25519": "no",
    "temporary_key": "",
    "instructions aes": "no",
    "instructions sha": "no",
}


def compare(tables: dict[str, Tables], *names: str, **failures: str) -> Libraries:
    """Of these servers, and of some that failed."""
    servers = [ComparedServer(name, (f"{name}.tlstax",), facts=FACTS) for name in names]
    servers += [ComparedServer(name, failure=why) for name, why in failures.items()]
    return compare_libraries("Two libraries", "rsa:2048", servers, tables)


@pytest.fixture
def capture() -> Capture:
    """Four rounds of connects and of bulk results."""
    made = Capture()
    for number in range(4):
        made.run("storm", "connect", "plaintext", number, {"connect": 1000, "handshake": 0}, 10)
        costs = {"connect": 3000, "handshake": 8000, "sign": 50000}
        window = made.run("storm", "connect", "tls", number, costs, 10)
        made.sample(window, "handshake", 1, 3)
        made.sample(window, "handshake", 2, 1)
        made.tables.handshakes += [
            Handshake(
                index, window, 1, 0, 9, 5, 0, 0, 0, 9, 0, 0, 0, 0, 1, 0,
                "success", "unknown", "unknown", "unknown", None,
            )
            for index in range(10)
        ]  # fmt: skip
        made.run("pooled", "bulk_result", "plaintext", number, {"record_write": 500}, 5)
        window = made.run("pooled", "bulk_result", "tls", number, {"record_write": 2500}, 5)
        made.sample(window, "record_write", 2, 8)
        for time_ns, value in ((0, 100), (9, 100 + 20 * KB)):
            for run_id in (window - 1, window):
                made.tables.status.append(Status(time_ns, run_id, "Bytes_sent", str(value)))
    return made


def test_costs_are_tls_less_plaintext_per_unit(capture: Capture) -> None:
    (server,) = compare({"one": capture.tables}, "one").servers
    assert server.handshake is not None
    assert server.handshake.total.value_ns == pytest.approx((2000 + 8000 + 50000) / 10)
    split = {entry.category: entry.cost.value_ns for entry in server.handshake.categories}
    # Three of four samples of the handshake are the cipher's; nothing split the connect phase.
    assert split == pytest.approx(
        {"asymmetric": 5000, "cipher": 600, "record_crypto": 200, "unknown": 200}
    )
    assert server.private_key_ns == pytest.approx(5000)
    assert server.record is not None
    assert server.record.total.value_ns == pytest.approx((2500 - 500) / 20)
    assert server.record.unit_count == pytest.approx(4 * 20)
    # Rounds that are all alike leave no doubt.
    assert server.record.total.low_ns == pytest.approx(server.record.total.value_ns)


def test_what_a_build_lacks_comes_from_what_was_found(capture: Capture) -> None:
    (server,) = compare({"one": capture.tables}, "one").servers
    assert server.build.library == "yaSSL"
    assert server.build.agreed == "TLSv1, AES256-SHA"
    assert server.build.lacks == [
        "no AES-NI code",
        "no SHA extensions code",
        "no X25519",
        "TLSv1 and TLSv1.1 only",
    ]
    has_all = dict.fromkeys(("x25519", "instructions aes", "instructions sha"), "yes")
    modern = FACTS | has_all | {"tls_versions": "TLSv1.2 TLSv1.3", "temporary_key": "DH 2048"}
    one = ComparedServer("one", ("one.tlstax",), facts=modern)
    (server,) = compare_libraries("", "", [one], {"one": capture.tables}).servers
    assert server.build.lacks == []
    assert server.build.agreed == "TLSv1, AES256-SHA, DH 2048"


def test_hot_functions_have_names_without_arguments_or_evidence(capture: Capture) -> None:
    (server,) = compare({"one": capture.tables}, "one").servers
    names = [(entry.name, entry.share) for entry in server.hot_handshake]
    nameless = "nameless in libcrypto.so.3 (aes+ghash)"
    assert names == [("TaoCrypt::AES::encrypt", 0.75), (nameless, 0.25)]
    assert function_name(NAMED._replace(symbol="(anonymous namespace)::f(int)")) == (
        "(anonymous namespace)::f"
    )


def test_few_rounds_have_their_range_and_say_so(capture: Capture) -> None:
    capture.tables.runs = [run for run in capture.tables.runs if run.round < 3]
    document = compare({"one": capture.tables}, "one")
    assert "3 rounds, with their range" in document.note
    assert document.servers[0].handshake is not None
    assert document.servers[0].handshake.total.unit_count == 3


def test_a_server_without_a_load_and_one_that_failed_are_shown(
    capture: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Capture("5.7.22")
    tables = {"one": capture.tables, "other": other.tables}
    document = dataclasses.asdict(compare(tables, "one", "other", gone="no npm"))
    page = libraries_html.render(document)
    assert "no npm" in page
    assert json.loads(json.dumps(document))["left_out"] == {"gone": "no npm"}
    libraries_terminal.print_libraries(document)
    printed = capsys.readouterr().out
    assert "gone: omitted. no npm" in printed
    assert "other" in printed


def test_the_page_draws_every_server_and_runs_nothing(capture: Capture) -> None:
    tables = {"one": capture.tables, "<two>": capture.tables}
    document = dataclasses.asdict(compare(tables, "one", "<two>"))
    page = libraries_html.render(document)
    assert "<script" not in page
    assert "script-src &#39;none&#39;" in page
    assert "<two>" not in page
    assert page.count("&lt;two&gt;") >= 4
    bars = re.findall(r"<title>(.*?)</title><rect", page)
    assert any("one, asymmetric" in title for title in bars)


def test_servers_and_their_failures_come_from_the_results() -> None:
    cells = {
        number: {"server": name, "key": "rsa:2048", "label": f"{name}-rsa2048 tcp connect"}
        for number, name in enumerate(("good", "poor", "poor", "gone"), start=1)
    }
    done = {"capture": "good.tlstax"}
    runs = {1: [done, done], 2: [{"capture": "poor.tlstax"}]}
    undone = [
        {"server": "poor", "state": "failed", "reason": "it ended", "run_count": 2},
        {"server": "gone", "state": "failed", "reason": "no npm", "run_count": 2},
        {"server": "good", "state": "planned", "reason": "", "run_count": 1},
    ]
    found = {"good-rsa2048": {"x25519": "yes"}}
    results = Results(Path(), {}, cells, runs, undone, [], found, {}, {}, {}, {})  # type: ignore[arg-type]
    assert compared_servers(results) == [
        ComparedServer("good", ("good.tlstax",), "", {"x25519": "yes"}),
        ComparedServer("poor", ("poor.tlstax",), "2 of 3 runs failed; it ended"),
        ComparedServer("gone", (), "no npm"),
    ]

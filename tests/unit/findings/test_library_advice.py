# SPDX-License-Identifier: GPL-2.0-only
"""Advice on method fetch and its locks is for the library and version that the server has."""

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.findings.rules import parse, rules
from tlstax.analysis.findings.window_metrics import Metric
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame
from tlstax.tests.unit.findings.loads import as_recorded, storm
from tlstax.tests.unit.findings.test_more_causes import WAITS, sampled, waiting

EARLY, LATER = "3.0 and 3.1 take locks", "Another version of this library is not known to help"


def by_library(rows: Tables, library: str, version: str) -> Tables:
    rows.targets = [rows.targets[0]._replace(tls_library=library, tls_version=version)]
    return rows


def advice(rows: Tables, name: str) -> str:
    made = explain.explain(as_recorded(rows)).findings
    return next(one.advice for one in made if one.id == name)


def fetching(of_ten: int) -> Tables:
    """So many of ten samples of handshakes are in method fetch."""
    frame = Frame(1, "libcrypto.so.3", "", 0, "EVP_CIPHER_fetch", 0, "dynsym", "")
    return sampled(storm("always"), "handshake", frame, of_ten)


@pytest.mark.parametrize(("of_ten", "name"), [(9, "fetch_tax"), (3, "fetch_over_signature")])
@pytest.mark.parametrize(
    ("version", "is_early"), [("3.0.19", True), ("3.1.8", True), ("3.2.0", False), ("3.5.9", False)]
)
def test_a_newer_openssl_is_for_servers_with_an_old_one(
    of_ten: int, name: str, version: str, is_early: bool
) -> None:
    text = advice(by_library(fetching(of_ten), "OpenSSL", version), name)
    assert "If this is" not in text
    assert ("OpenSSL 3.2" in text) is is_early
    assert ("a newer one is not known to help" in text) is not is_early
    assert "keep connections open" in text, "that helps with any of them"


@pytest.mark.parametrize(
    ("library", "version", "known", "other"),
    [
        ("OpenSSL", "3.0.19", EARLY, LATER),
        ("OpenSSL 3", "OpenSSL 3.0.19", EARLY, LATER),  # as older captures have it
        ("OpenSSL", "3.1.8", EARLY, LATER),
        ("OpenSSL", "3.5.9", LATER, EARLY),
        ("OpenSSL", "3.10.0", LATER, EARLY),
        ("OpenSSL", "1.1.1w", LATER, EARLY),
        ("yaSSL", "unknown", LATER, EARLY),
        ("wolfSSL", "5.6.3", LATER, EARLY),
        ("wolfSSL", "3.0.1", LATER, EARLY),
        ("OpenSSL", "unknown", "if it is OpenSSL 3.0 or 3.1", EARLY),
        ("unknown", "unknown", "if it is OpenSSL 3.0 or 3.1", LATER),
    ],
)
def test_locks_of_a_library_have_the_advice_of_its_version(
    library: str, version: str, known: str, other: str
) -> None:
    rows = by_library(waiting("always", *WAITS["library_lock"], 0.3), library, version)
    text = advice(rows, "library_lock")
    assert known in text
    assert other not in text
    assert "Keep connections open" in text


@pytest.mark.parametrize(("of_ten", "name"), [(9, "fetch_tax"), (3, "fetch_over_signature")])
def test_of_an_unknown_version_the_condition_is_told(of_ten: int, name: str) -> None:
    text = advice(by_library(fetching(of_ten), "OpenSSL 3", "unknown"), name)
    assert "if it is OpenSSL 3.0 or 3.1" in text


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        # It counts what the server itself could not do, no client that goes.
        ("no_handshake", "Connection_errors", "Aborted_connects of the server's status"),
        # A directive of nginx.
        ("old_version", "ssl_protocols", "tls_version of the server"),
        # No driver for Python hands a session on.
        ("no_resumption", "SSLContext", "MYSQL_OPT_SSL_SESSION_DATA"),
        # The binary log is lost as far as the kernel has not written it, and replicas are ahead.
        ("commit_flush", "= 2 and sync_binlog = 0", "sync_binlog = 0 may lose far more"),
        # Large write sets stop the whole cluster.
        ("other_servers", "; larger transactions wait", "in a Galera cluster"),
        # The thread that is short of CPU expands them.
        ("replica_fetch", "compression (replica_compressed", "expanded by this same thread"),
        # Clients that have nothing else are locked out.
        ("cipher_downgrade", "or update the clients", "Update clients that have no AES-GCM"),
        # The time is that of commits where logs are encrypted, and no pool of pages helps.
        ("tde_reads", "Keep the pages", "encrypt_binlog or binlog_encryption"),
    ],
)
def test_advice_is_what_a_server_of_the_family_can_do(name: str, wrong: str, right: str) -> None:
    (text,) = (rule.advice for rule in rules() if rule.id == name)
    assert wrong not in text
    assert right in text


def test_no_advice_is_a_library_without_updates() -> None:
    texts = [
        text
        for rule in rules()
        for text in (rule.advice, *(one.text for one in rule.advice_if))
        if "1.1.1" in text
    ]
    assert texts == [], "OpenSSL 1.1.1 ended in 2023"


def test_the_time_of_encryption_at_rest_is_not_that_of_reading_alone() -> None:
    (rule,) = (one for one in rules() if one.id == "tde_reads")
    assert "when they are read" not in rule.title
    assert "the two are not told apart" in rule.sentence


def test_no_rule_leaves_it_to_the_reader_which_library_it_is() -> None:
    assert not [rule.id for rule in rules() if "OpenSSL 3.0" in rule.advice]


def test_advice_that_depends_on_a_metric_precedes_the_rest() -> None:
    text = """
        [[finding]]
        id = "x"
        title = "x"
        question = "x"
        size = "tls_share"
        when = [{ metric = "tls_share", above = 0.1 }]
        sentence = "x"
        evidence = []
        advice_if = [
            { metric = "tls_share", above = 0.5, text = "Much." },
            { metric = "tls_library", is = "yaSSL", text = "Old." },
        ]
        advice = "Always."
        source = "x"
    """
    (rule,) = parse(text)
    metrics = {"tls_share": Metric(0.6, 0.55, 0.65), "tls_library": Metric(None, text="yaSSL 2")}
    assert rule.advise(metrics) == "Much. Old. Always."
    metrics["tls_share"] = Metric(0.6, 0.4, 0.8)
    assert rule.advise(metrics) == "Old. Always.", "a part of its interval is below the bound"
    assert rule.advise({}) == "Always."

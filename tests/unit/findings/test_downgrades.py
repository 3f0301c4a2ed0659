# SPDX-License-Identifier: GPL-2.0-only
"""The key by its certificate, versions and ciphers older than the server's, stolen CPU time."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame, SampleStack, Stack, Status
from tlstax.tests.unit.findings.loads import MODES, MS, S, dense, found, sentence, storm


def certified(rows: Tables, key: str) -> Tables:
    """With what the server's certificate says."""
    rows.status = [Status(S, None, "certificate/key", key)]
    return rows


def by_library(rows: Tables, library: str, version: str) -> Tables:
    rows.targets = [rows.targets[0]._replace(tls_library=library, tls_version=version)]
    return rows


@MODES
def test_a_long_key_is_named_by_its_certificate_and_not_by_what_it_costs(mode: str) -> None:
    rows = certified(storm(mode, sign=3 * MS), "RSA 4096")
    assert "long_key" in found(rows)
    assert "rsa_key_size" not in found(rows)
    assert "RSA 4096" in sentence(rows, "long_key")
    assert "rsa_key_size" in found(storm(mode, sign=3 * MS))
    slow = certified(storm(mode, sign=3 * MS), "RSA 2048")
    assert not {"long_key", "rsa_key_size"} & {*found(slow)}


@MODES
def test_a_long_key_on_yassl_is_a_long_key(mode: str) -> None:
    rows = by_library(certified(storm(mode, sign=9 * MS), "RSA 4096"), "yaSSL", "2.4.4")
    assert "long_key" in found(rows)
    assert "slow_signature" not in found(rows)
    assert "slow_signature" in found(certified(rows, "RSA 2048"))


@MODES
@pytest.mark.parametrize(
    ("library", "version", "expected"),
    [("OpenSSL 3", "OpenSSL 3.0.19", True), ("OpenSSL", "1.1.1w", True),
     ("OpenSSL", "1.0.2q", False), ("yaSSL", "2.4.4", False)],
)  # fmt: skip
def test_tls_12_is_a_downgrade_only_where_the_library_has_13(
    mode: str, library: str, version: str, expected: bool
) -> None:
    rows = by_library(storm(mode), library, version)
    assert "version_downgrade" not in found(rows)
    rows.handshakes = [row._replace(tls_version="TLSv1.2") for row in rows.handshakes]
    assert ("version_downgrade" in found(rows)) is expected


@MODES
@pytest.mark.parametrize(
    ("server", "version", "expected"),
    [("mysql", "5.7.44", False), ("percona", "5.7.44-53", False), ("mysql", "8.0.15", False),
     ("mysql", "8.0.16", True), ("mysql", "unknown", True), ("mariadb", "10.2.44", True)],
)  # fmt: skip
def test_tls_12_is_no_downgrade_where_the_server_has_no_13(
    mode: str, server: str, version: str, expected: bool
) -> None:
    """MySQL before 8.0.16 turns it off, also with OpenSSL 1.1.1."""
    rows = by_library(storm(mode), "OpenSSL", "1.1.1w")
    rows.targets = [rows.targets[0]._replace(server=server, server_version=version)]
    rows.handshakes = [row._replace(tls_version="TLSv1.2") for row in rows.handshakes]
    assert ("version_downgrade" in found(rows)) is expected


def test_a_length_of_a_key_that_is_no_number_is_unknown() -> None:
    """A superscript is a digit, but no number: it was a traceback of the report."""
    assert "long_key" not in found(certified(storm("always", sign=3 * MS), "RSA \u00b2"))


@MODES
@pytest.mark.parametrize("cpu_flags", ["aes sha_ni", "aes"])
@pytest.mark.parametrize(
    "suite", ["ECDHE-RSA-AES256-SHA", "ECDHE-RSA-AES256-GCM-SHA384", "RC4-SHA"]
)
def test_aes_cbc_is_named_where_encrypting_takes_the_time(
    mode: str, suite: str, cpu_flags: str
) -> None:
    """Whether the CPU has instructions for digests or not: it has them for AES."""
    rows = storm(mode)
    rows.handshakes = [row._replace(tls_version="TLSv1.2", cipher=suite) for row in rows.handshakes]
    assert "cipher_downgrade" not in found(rows)
    rows.ledger = [
        row._replace(phase="record_write") if row.phase == "command" else row for row in rows.ledger
    ]
    rows.meta["cpu_flags"] = cpu_flags
    rows.frames = [Frame(1, "libcrypto.so.3", "", 0, "aesni_cbc_encrypt", 0, "dynsym", "aes")]
    rows.stacks = [Stack(1, "1")]
    rows.samples = [
        SampleStack(window.window_id, "record_write", -1, 1, None, 40) for window in dense(rows)
    ]
    rows.ledger = [
        row._replace(time_ns=row.time_ns * 20) if row.phase == "record_write" else row
        for row in rows.ledger
    ]
    assert "cipher_without_hardware" not in found(rows)
    assert ("cipher_downgrade" in found(rows)) is ("-AES256-SHA" in suite)
    if "-AES256-SHA" in suite:
        rows.handshakes[::2] = [
            row._replace(cipher="TLS_AES_256_GCM_SHA384") for row in rows.handshakes[::2]
        ]
        text = sentence(rows, "cipher_downgrade")
        assert "agree on such a suite (in use: " in text
        assert "records of all connections" in text

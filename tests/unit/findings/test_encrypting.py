# SPDX-License-Identifier: GPL-2.0-only
"""Causes in what encrypts: replicas that fetch or are fed, ciphers in software, long chains."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame, Ledger, SampleStack, Stack, Status, Thread
from tlstax.collectors.capture.syscalls import NUMBERS
from tlstax.collectors.host import cpu_facts
from tlstax.tests.unit.findings.loads import (
    MODES,
    MS,
    SECONDS,
    S,
    dense,
    found,
    load,
    sentence,
    shakes,
    storm,
)

USER = -1
CRYPTO, SERVER = "/usr/lib/libcrypto.so.3", "/usr/sbin/mariadbd"


# ---- a replica ----


def replica(mode: str, busy: int, tls_of_ten: int, *, queued: int = 0) -> Tables:
    """A server that serves nobody; its thread that fetches wants a CPU for `busy` ms a second."""
    waits = 1000 - busy
    cells = {
        ("background", "on_cpu"): (busy - queued) * MS,
        ("background", "runnable"): queued * MS,
        ("background", "blocked_network"): waits * MS,
    }
    rows = load(mode, cells, {})
    rows.threads = [Thread(1, 9, "one", "replica_io", 0, None)]
    names = ("EVP_DecryptUpdate", "vio_ssl_read", "handle_slave_io", "my_write")
    rows.frames = [
        Frame(at, SERVER, "", 0, name, 0, "dynsym", "") for at, name in enumerate(names, 1)
    ]
    rows.stacks = [Stack(1, "1 2 3"), Stack(2, "4 3")]
    rows.samples = [
        SampleStack(window.window_id, "background", USER, stack, None, 10 * count)
        for window in dense(rows)
        for stack, count in ((1, tls_of_ten), (2, 10 - tls_of_ten))
        if count
    ]
    return rows


@MODES
@pytest.mark.parametrize(
    ("busy", "tls", "expected"), [(900, 5, True), (900, 0, False), (400, 5, False), (900, 1, False)]
)
def test_a_replica_that_decrypts_most_of_the_time_is_named(
    mode: str, busy: int, tls: int, expected: bool
) -> None:
    rows = replica(mode, busy, tls)
    assert ("replica_fetch" in found(rows)) is expected
    if expected:
        text = sentence(rows, "replica_fetch")
        assert "waits for a CPU in 90 % of its time" in text
        assert "TLS takes 50 % of its CPU time" in text


@MODES
def test_waiting_for_a_cpu_is_no_wait_for_the_source(mode: str) -> None:
    assert "replica_fetch" in found(replica(mode, 700, 5, queued=400))


@MODES
def test_the_kernel_copying_is_no_tls_of_a_replica(mode: str) -> None:
    rows = replica(mode, 900, 5)
    receiving = NUMBERS["recvfrom"]
    rows.samples = [row._replace(syscall=receiving) for row in rows.samples]
    assert "replica_fetch" not in found(rows)


@MODES
def test_a_server_that_decrypts_for_clients_is_no_replica(mode: str) -> None:
    rows = replica(mode, 900, 5)
    rows.threads = [Thread(1, 9, "one", "binlog_dump", 0, None)]
    assert "replica_fetch" not in found(rows)


# ---- a source ----


@pytest.mark.parametrize("mode", ["always", "budget"])
@pytest.mark.parametrize(
    ("role", "sending_ms", "expected"),
    [("binlog_dump", 600, False), ("connection", 600, True), ("binlog_dump", 10, True)],
    ids=["replica", "client", "hardly a replica"],
)
def test_events_for_replicas_are_no_results_in_tiny_records(
    mode: str, role: str, sending_ms: int, expected: bool
) -> None:
    """Each event is sent by itself, whatever net_buffer_length is; all writes are one count."""
    cells = {("record_write", "on_cpu"): 300 * MS, ("command", "on_cpu"): 200 * MS}
    rows = load(mode, cells, {"command": 100, "record_write": 20_000})
    rows.threads.append(Thread(2, 10, "two", role, 0, None))
    for window in dense(rows):
        sending_ns = sending_ms * MS * (window.end_ns - window.start_ns) // S
        rows.ledger.append(Ledger(window.window_id, 2, "record_write", "on_cpu", sending_ns))
    rows.status = [Status(at * S, None, "Bytes_sent", str(at * 8_000_000)) for at in SECONDS]
    rows.frames = [Frame(1, CRYPTO, "", 0, "AES_encrypt", 0, "dynsym", "")]
    rows.stacks = [Stack(1, "1")]
    rows.samples = [
        SampleStack(window.window_id, "record_write", USER, 1, None, 30) for window in dense(rows)
    ]
    assert ("tiny_records" in found(rows)) is expected


# ---- ciphers in software ----


def encrypting(mode: str, names: tuple[str, ...], code: str = "", *, read: bool = True) -> Tables:
    """Results whose records take most of the time, in a function of this name and code."""
    cells = {("record_write", "on_cpu"): 700 * MS, ("command", "on_cpu"): 300 * MS}
    rows = load(mode, cells, {"command": 1000, "record_write": 1000})
    rows.meta["cpu_flags"] = "aes pclmulqdq sha_ni"
    file = CRYPTO if names[0].startswith("[") else "/opt/lib/libcrypto.so.1.0.0"
    rows.frames = [
        Frame(at, file, "", 0, name, 0, "none", code if at == 1 else "")
        for at, name in enumerate(names, 1)
    ]
    if read:
        rows.frames.append(Frame(90, CRYPTO, "", 0, "[libcrypto+0x9]", 0, "none", "bignum"))
    rows.stacks = [Stack(1, " ".join(str(at) for at in range(1, len(names) + 1)))]
    rows.samples = [
        SampleStack(window.window_id, "record_write", USER, 1, None, 100) for window in dense(rows)
    ]
    return rows


UNNAMED = ("[libcrypto+0xe1100]", "CRYPTO_gcm128_encrypt_ctr32", "EVP_EncryptUpdate")


@MODES
@pytest.mark.parametrize(
    ("names", "code", "expected"),
    [
        (UNNAMED, "", True),
        (UNNAMED, "aes+ghash", False),
        (("_bsaes_encrypt8", "bsaes_ctr32_encrypt_blocks", "EVP_EncryptUpdate"), "", True),
        (("aesni_gcm_encrypt", "EVP_EncryptUpdate"), "", False),
    ],
)
def test_a_cipher_without_instructions_is_told_by_its_functions(
    mode: str, names: tuple[str, ...], code: str, expected: bool
) -> None:
    """As recorded with OPENSSL_ia32cap: names of OpenSSL 1.0.2, and none of Debian's."""
    rows = encrypting(mode, names, code)
    assert ("cipher_in_software" in found(rows)) is expected


@MODES
@pytest.mark.parametrize("flags", ["", "aes", "asimd pmull sha2"])
def test_nothing_is_said_of_a_cpu_without_those_instructions(mode: str, flags: str) -> None:
    rows = encrypting(mode, UNNAMED)
    rows.meta["cpu_flags"] = flags
    assert "cipher_in_software" not in found(rows)


def on_arm64(rows: Tables) -> Tables:
    """There `code` is the name of a source file at most, and that of assembly is not known."""
    rows.meta["cpu_flags"] = "aes asimd pmull"
    rows.frames = [
        row._replace(object=CRYPTO, code="crypto/evp/e_aes.c" if row.code else "")
        for row in rows.frames
    ]
    return rows


@MODES
@pytest.mark.parametrize(("name", "expected"), [("AES_encrypt", True), (UNNAMED[0], False)])
def test_instructions_of_arm64_count_and_its_code_is_not_read(
    mode: str, name: str, expected: bool
) -> None:
    rows = on_arm64(encrypting(mode, (name, *UNNAMED[1:])))
    assert ("cipher_in_software" in found(rows)) is expected


@MODES
@pytest.mark.parametrize(
    "name",
    [
        "aes_v8_ctr32_encrypt_blocks",
        "gcm_ghash_v8",
        "aes_gcm_enc_128_kernel",
        "unroll8_eor3_aes_gcm_enc_256_kernel",
    ],
)
def test_a_few_samples_in_software_are_few_of_those_of_arm64(mode: str, name: str) -> None:
    rows = on_arm64(encrypting(mode, ("AES_encrypt", "EVP_EncryptUpdate")))
    rows.frames.append(Frame(50, CRYPTO, "", 0, name, 0, "dynsym", ""))
    rows.stacks.append(Stack(2, "50 2"))
    few = [row._replace(sample_count=50) for row in rows.samples]
    rows.samples = few + [row._replace(user_stack_id=2, sample_count=60) for row in few]
    assert "cipher_in_software" not in found(rows)


@MODES
@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("fp asimd evtstrm crc32 cpuid", True),
        ("fpu sse sse2 ssse3 syscall", True),
        ("fp asimd aes pmull sha1 sha2", False),
        ("unknown", False),
    ],
)
def test_a_cpu_without_aes_is_told_from_one_that_is_not_known(
    mode: str, features: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its features was recorded, and the finding was silent on just these CPUs."""
    fields = {"Features" if features.startswith("fp ") else "flags": features}
    monkeypatch.setattr(cpu_facts, "cpu_field", lambda name: fields.get(name, "unknown"))
    rows = encrypting(mode, ("vpaes_encrypt_core", "EVP_EncryptUpdate"))
    rows.handshakes = shakes(rows, MS, 40_000)
    rows.meta["cpu_flags"] = str(cpu_facts.cpu_facts()["cpu_flags"])
    assert ("cipher_without_hardware" in found(rows)) is expected


@MODES
def test_code_that_nobody_has_read_shows_nothing(mode: str) -> None:
    """The file was not there when the functions were named."""
    assert "cipher_in_software" not in found(encrypting(mode, UNNAMED, read=False))


@MODES
def test_a_function_without_evidence_elsewhere_is_no_cipher(mode: str) -> None:
    rows = encrypting(mode, ("[libcrypto+0x1]", "EVP_DigestUpdate", "SSL_write"))
    assert "cipher_in_software" not in found(rows)


# ---- long chains ----


@MODES
@pytest.mark.parametrize(
    ("size", "wait", "expected"),
    [("20000", 40, True), ("14600", 40, False), ("20000", 22, False), ("unknown", 40, False)],
)
def test_a_chain_is_named_where_handshakes_have_a_round_trip_more(
    mode: str, size: str, wait: int, expected: bool
) -> None:
    """A round trip of 20 ms: two in handshakes, and one in the rest of connecting."""
    rows = storm(mode, wait=wait * MS, other=20 * MS)
    said = (("chain", "12"), ("chain_bytes", size))
    rows.status = [Status(S, None, f"certificate/{name}", value) for name, value in said]
    assert ("long_chain" in found(rows)) is expected


@MODES
@pytest.mark.parametrize(
    ("server", "version", "library", "expected"),
    [
        ("mysql", "8.0.29", "OpenSSL", False),
        ("percona", "8.0.29-21", "OpenSSL", False),
        ("mysql", "5.7.44-log", "OpenSSL", False),
        ("mysql", "8.0.30", "OpenSSL", True),
        ("mariadb", "5.5.68-MariaDB", "OpenSSL", True),
        ("mariadb", "10.2.44-MariaDB", "yaSSL", False),
    ],
)
def test_certificates_that_a_server_does_not_send_need_no_round_trip(
    mode: str, server: str, version: str, library: str, expected: bool
) -> None:
    """The file is as long, but the first certificate of it is all that clients get."""
    rows = storm(mode, wait=40 * MS, other=20 * MS)
    rows.targets = [
        rows.targets[0]._replace(server=server, server_version=version, tls_library=library)
    ]
    rows.status = [Status(S, None, "certificate/chain_bytes", "20000")]
    assert ("long_chain" in found(rows)) is expected

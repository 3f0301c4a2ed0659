# SPDX-License-Identifier: GPL-2.0-only
"""Causes beside TLS in connecting: passwords, threads, locks of libraries; each at its bound."""

import pytest

from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame, OffcpuStack, SampleStack, Stack, Status, Thread
from tlstax.collectors.capture.syscalls import NUMBERS
from tlstax.tests.unit.findings.loads import (
    BOTH,
    MS,
    PER_SECOND,
    S,
    dense,
    found,
    load,
    sentence,
    storm,
)

USER = -1


def sampled(rows: Tables, phase: str, frame: Frame, of_ten: int, syscall: int = USER) -> Tables:
    """So many samples of ten in this phase have the frame."""
    rows.frames = [frame, Frame(99, "mariadbd", "", 0, "do_command", 0, "dynsym", "")]
    rows.stacks = [Stack(1, "1"), Stack(99, "99")]
    rows.samples = [
        SampleStack(window.window_id, phase, number, stack, None, 10 * count)
        for window in dense(rows)
        for number, stack, count in ((syscall, 1, of_ten), (USER, 99, 10 - of_ten))
        if count
    ]
    return rows


def computing(mode: str, connect: int) -> Tables:
    """A storm whose connects compute so much (ns)."""
    rows = storm(mode)
    rows.ledger = [
        row._replace(time_ns=row.time_ns * connect // 100_000)
        if (row.phase, row.state) == ("connect", "on_cpu")
        else row
        for row in rows.ledger
    ]
    return rows


# ---- passwords ----


@BOTH
@pytest.mark.parametrize("function", ["my_crypt_genhash", "PKCS5_PBKDF2_HMAC"])
@pytest.mark.parametrize(("of_ten", "expected"), [(9, True), (1, False)])
def test_hashing_passwords_is_named_by_its_samples(
    mode: str, function: str, of_ten: int, expected: bool
) -> None:
    frame = Frame(1, "mysqld", "", 0, function, 0, "dynsym", "")
    rows = sampled(computing(mode, 2 * MS), "connect", frame, of_ten)
    assert ("password_hashing" in found(rows)) is expected
    if expected:
        assert "1.80 ms for each connection" in sentence(rows, "password_hashing")


@BOTH
def test_a_function_of_statements_is_no_check_of_a_password(mode: str) -> None:
    """SELECT SHA2() and its like use the same functions."""
    frame = Frame(1, "mysqld", "", 0, "my_crypt_genhash", 0, "dynsym", "")
    rows = sampled(computing(mode, 2 * MS), "command", frame, 9)
    assert "password_hashing" not in found(rows)


@BOTH
def test_few_samples_prove_no_hashing(mode: str) -> None:
    frame = Frame(1, "mysqld", "", 0, "my_crypt_genhash", 0, "dynsym", "")
    rows = sampled(computing(mode, 2 * MS), "connect", frame, 9)
    rows.samples = [row._replace(sample_count=row.sample_count // 10) for row in rows.samples]
    assert "password_hashing" not in found(rows)


# ---- threads ----


def born(rows: Tables, every: int) -> Tables:
    """One connection in `every` has a thread of its own."""
    number = 1
    for window in dense(rows):
        count = PER_SECOND * (window.end_ns - window.start_ns) // S // every
        for at in range(count):
            number += 1
            start = window.start_ns + (at + 1) * (window.end_ns - window.start_ns) // (count + 1)
            rows.threads.append(Thread(number, number, "one", "connection", start, start + MS))
    return rows


CLONE = Frame(1, "libc.so.6", "", 0, "clone3", 0, "dynsym", "")


@BOTH
@pytest.mark.parametrize(
    ("every", "of_ten", "expected"), [(1, 6, True), (1, 0, False), (5, 6, False)]
)
def test_threads_are_named_where_they_are_created_and_dear(
    mode: str, every: int, of_ten: int, expected: bool
) -> None:
    rows = sampled(computing(mode, MS), "connect", CLONE, of_ten, NUMBERS["clone3"])
    assert ("thread_creation" in found(born(rows, every))) is expected


@BOTH
def test_the_first_function_of_a_thread_is_no_creation(mode: str) -> None:
    """Each stack begins in clone3: only the system call tells that a thread is made."""
    rows = sampled(computing(mode, MS), "connect", CLONE, 9)
    assert "thread_creation" not in found(born(rows, 1))


@BOTH
def test_threads_that_were_there_before_are_not_born(mode: str) -> None:
    rows = sampled(computing(mode, MS), "connect", CLONE, 6, NUMBERS["clone3"])
    begin = min(window.start_ns for window in rows.windows)
    rows.threads += [Thread(9 + at, at, "one", "connection", begin, None) for at in range(900)]
    assert "thread_creation" not in found(rows)


# ---- waits in libraries and services ----


def waiting(mode: str, names: list[tuple[str, str]], state: str, share: float) -> Tables:
    """A share of a second of each connection's connecting is such a wait."""
    rows = storm(mode)
    served = sum(row.time_ns for row in rows.ledger if row.phase != "idle")
    extra = share / (1 - share) * served / len(dense(rows))
    rows.frames = [
        Frame(at, file, "", 0, name, 0, "dynsym", "") for at, (file, name) in enumerate(names, 1)
    ]
    rows.stacks = [Stack(1, " ".join(str(at) for at in range(1, len(names) + 1)))]
    one = next(row for row in rows.ledger if row.phase == "connect")
    rows.ledger += [
        one._replace(window_id=window.window_id, phase="connect", state=state, time_ns=int(extra))
        for window in dense(rows)
    ]
    rows.waits = [
        OffcpuStack(window.window_id, "connect", state, NUMBERS["futex"], 1, None, 9, S)
        for window in dense(rows)
    ]
    return rows


LIBC, CRYPTO, SERVER = "/lib/libc.so.6", "/usr/lib/libcrypto.so.3", "/usr/sbin/mariadbd"
WAITS = {
    "allocator_lock": ([(LIBC, "[libc.so.6+0x1]"), (LIBC, "malloc")], "blocked_futex"),
    "library_lock": (
        [(LIBC, "pthread_rwlock_wrlock"), (CRYPTO, "CRYPTO_THREAD_write_lock")], "blocked_futex",
    ),
    "external_authentication": (
        [(LIBC, "read"), ("/usr/lib/mysql/plugin/auth_pam.so", "[auth_pam.so+0x1]")],
        "blocked_other",
    ),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize(("share", "expected"), [(0.14, True), (0.08, False)])
def test_a_wait_in_a_library_is_named_from_a_tenth_of_the_time(
    mode: str, name: str, share: float, expected: bool
) -> None:
    frames, state = WAITS[name]
    assert (name in found(waiting(mode, frames, state, share))) is expected


@BOTH
@pytest.mark.parametrize("short", [False, True])
def test_waits_that_outlast_a_window_are_taken_as_those_that_ended(mode: str, short: bool) -> None:
    """As recorded with PAM, which takes two seconds to refuse: most windows have time alone.

    With `short`, waits for the client end in each window.
    """
    frames, state = WAITS["external_authentication"]
    rows = waiting(mode, frames, state, 0.5)
    long = [row._replace(time_ns=3 * S) for row in rows.waits[::3]]
    rows.frames.append(Frame(70, SERVER, "", 0, "vio_io_wait", 0, "dynsym", ""))
    rows.stacks.append(Stack(2, "70"))
    ended = [row._replace(user_stack_id=2, time_ns=MS) for row in rows.waits]
    rows.waits = long + ended * short
    assert "external_authentication" in found(rows)
    rows.waits = ended
    assert "external_authentication" not in found(rows)


@BOTH
@pytest.mark.parametrize(
    "names",
    [
        [(LIBC, "pthread_cond_wait"), (SERVER, "my_malloc"), (SERVER, "free_items")],
        [(LIBC, "pthread_mutex_lock"), (SERVER, "handle_connection")],
        [(LIBC, "read"), (SERVER, "native_password_authenticate")],
    ],
)
def test_other_waits_are_neither_the_allocator_nor_a_library(
    mode: str, names: list[tuple[str, str]]
) -> None:
    rows = waiting(mode, names, "blocked_futex", 0.3)
    assert not {*WAITS} & {*found(rows)}


@BOTH
def test_a_read_in_malloc_is_no_lock(mode: str) -> None:
    rows = waiting(mode, [(LIBC, "malloc")], "blocked_disk", 0.3)
    assert "allocator_lock" not in found(rows)


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


@BOTH
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


@BOTH
def test_waiting_for_a_cpu_is_no_wait_for_the_source(mode: str) -> None:
    assert "replica_fetch" in found(replica(mode, 700, 5, queued=400))


@BOTH
def test_the_kernel_copying_is_no_tls_of_a_replica(mode: str) -> None:
    rows = replica(mode, 900, 5)
    receiving = NUMBERS["recvfrom"]
    rows.samples = [row._replace(syscall=receiving) for row in rows.samples]
    assert "replica_fetch" not in found(rows)


@BOTH
def test_a_server_that_decrypts_for_clients_is_no_replica(mode: str) -> None:
    rows = replica(mode, 900, 5)
    rows.threads = [Thread(1, 9, "one", "binlog_dump", 0, None)]
    assert "replica_fetch" not in found(rows)


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


@BOTH
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


@BOTH
@pytest.mark.parametrize("flags", ["", "aes", "aes pmull sha2"])
def test_nothing_is_said_of_a_cpu_without_those_instructions(mode: str, flags: str) -> None:
    rows = encrypting(mode, UNNAMED)
    rows.meta["cpu_flags"] = flags
    assert "cipher_in_software" not in found(rows)


@BOTH
def test_code_that_nobody_has_read_shows_nothing(mode: str) -> None:
    """The file was not there when the functions were named."""
    assert "cipher_in_software" not in found(encrypting(mode, UNNAMED, read=False))


@BOTH
def test_a_function_without_evidence_elsewhere_is_no_cipher(mode: str) -> None:
    rows = encrypting(mode, ("[libcrypto+0x1]", "EVP_DigestUpdate", "SSL_write"))
    assert "cipher_in_software" not in found(rows)


# ---- long chains ----


@BOTH
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

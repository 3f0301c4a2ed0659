# SPDX-License-Identifier: GPL-2.0-only
"""Causes beside TLS in connecting: passwords, threads, locks of libraries; each at its bound."""

import pytest

from tlstax.analysis.findings.work_series import add_births
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame, OffcpuStack, SampleStack, Stack, Thread
from tlstax.collectors.capture.syscalls import NUMBERS
from tlstax.tests.unit.findings.loads import (
    MODES,
    MS,
    PER_SECOND,
    S,
    dense,
    found,
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


@MODES
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


@MODES
def test_a_function_of_statements_is_no_check_of_a_password(mode: str) -> None:
    """SELECT SHA2() and its like use the same functions."""
    frame = Frame(1, "mysqld", "", 0, "my_crypt_genhash", 0, "dynsym", "")
    rows = sampled(storm(mode, queries=60), "command", frame, 9)
    assert "password_hashing" not in found(rows)


@MODES
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


@MODES
@pytest.mark.parametrize(
    ("every", "of_ten", "expected"), [(1, 6, True), (1, 0, False), (5, 6, False)]
)
def test_threads_are_named_where_they_are_created_and_dear(
    mode: str, every: int, of_ten: int, expected: bool
) -> None:
    rows = sampled(computing(mode, MS), "connect", CLONE, of_ten, NUMBERS["clone3"])
    assert ("thread_creation" in found(born(rows, every))) is expected


@pytest.mark.parametrize(("of_hundred", "expected"), [(60, True), (0, False)])
def test_samples_between_dense_windows_show_threads_too(of_hundred: int, expected: bool) -> None:
    """Few connections' samples fall into the windows of a budget; a system call needs no ledger."""
    rows = sampled(computing("budget", MS), "connect", CLONE, 6, NUMBERS["clone3"])
    rows.samples = [row._replace(sample_count=row.sample_count // 10) for row in rows.samples]
    assert "thread_creation" not in found(born(rows, 1)), "too few"
    dense_ids = {window.window_id for window in dense(rows)}
    rows.samples += [
        SampleStack(window.window_id, "untracked", number, stack, None, count)
        for window in rows.windows
        if window.window_id not in dense_ids
        for number, stack, count in (
            (NUMBERS["clone3"], 1, of_hundred), (USER, 99, 100 - of_hundred)
        )
    ]  # fmt: skip
    assert ("thread_creation" in found(rows)) is expected


@MODES
def test_the_first_function_of_a_thread_is_no_creation(mode: str) -> None:
    """Each stack begins in clone3: only the system call tells that a thread is made."""
    rows = sampled(computing(mode, MS), "connect", CLONE, 9)
    assert "thread_creation" not in found(born(rows, 1))


@MODES
def test_threads_that_were_there_before_or_come_between_windows_are_not_born(mode: str) -> None:
    rows = storm(mode)
    block_of = {window.window_id: number for number, window in enumerate(dense(rows))}
    first, second = dense(rows)[:2]
    starts = (first.start_ns, first.start_ns + 1, first.end_ns - 1, second.start_ns)
    rows.threads = [
        Thread(at, at, "one", "connection", start, None)
        for at, start in enumerate((*starts, dense(rows)[-1].end_ns))
    ]
    rows.threads.append(Thread(9, 9, "one", "page_flush", first.start_ns + 1, None))
    born_in: list[int] = []
    add_births(lambda name, block, value: born_in.append(block), block_of, rows)
    assert born_in == [0, 0, 1]


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


@MODES
@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize(("share", "expected"), [(0.14, True), (0.08, False)])
def test_a_wait_in_a_library_is_named_from_a_tenth_of_the_time(
    mode: str, name: str, share: float, expected: bool
) -> None:
    frames, state = WAITS[name]
    assert (name in found(waiting(mode, frames, state, share))) is expected


@MODES
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


@MODES
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


@MODES
def test_a_read_in_malloc_is_no_lock(mode: str) -> None:
    rows = waiting(mode, [(LIBC, "malloc")], "blocked_disk", 0.3)
    assert "allocator_lock" not in found(rows)

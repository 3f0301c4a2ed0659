# SPDX-License-Identifier: GPL-2.0-only
"""Who asked: memory and locks belong to what called them, and every sample to one line."""

import pytest

from tlstax.analysis.classify import callers
from tlstax.analysis.classify.callers import NOBODY, Asker
from tlstax.analysis.classify.composition import Stacks, compose, count_by_unit, count_samples
from tlstax.analysis.classify.taxonomy import Sample, builtin
from tlstax.analysis.model.composition import CallerShare, Composition
from tlstax.analysis.rows import window_units
from tlstax.analysis.rows.tables import Group
from tlstax.collectors.capture.schema import Frame, SampleStack, Stack, Window

LIBC, CRYPTO, SSL, SERVER = (
    "/usr/lib/libc.so.6",
    "/usr/lib/libcrypto.so.3",
    "/usr/lib/libssl.so.3",
    "/usr/sbin/mariadbd",
)
IN_SESSION = "ASN1_item_d2i_ex in d2i_SSL_SESSION"
FRAMES = [
    Frame(1, LIBC, "", 1, "malloc", 0, "buildid", ""),
    Frame(2, CRYPTO, "", 2, "CRYPTO_malloc", 0, "dynsym", ""),
    Frame(3, CRYPTO, "", 3, "EVP_MD_fetch", 0, "dynsym", ""),
    Frame(4, CRYPTO, "", 4, "OPENSSL_sk_dup", 0, "dynsym", ""),
    Frame(5, CRYPTO, "", 5, "ASN1_item_d2i_ex", 0, "dynsym", ""),
    Frame(6, SSL, "", 6, "[libssl+0x6]", 0, "none", "ssl/statem/statem_srvr.c"),
    Frame(7, SSL, "", 7, "SSL_accept", 0, "dynsym", ""),
    Frame(8, SERVER, "", 8, "acl_authenticate(THD*, unsigned int)", 0, "dynsym", ""),
    Frame(9, LIBC, "", 9, "pthread_mutex_lock", 0, "buildid", ""),
    Frame(10, "kernel", "", 0, "tcp_sendmsg", 0, "kallsyms", ""),
    Frame(11, LIBC, "", 11, "send", 0, "buildid", ""),
    Frame(12, CRYPTO, "", 12, "BIO_write", 0, "dynsym", ""),
    Frame(14, SSL, "", 14, "d2i_SSL_SESSION", 0, "dynsym", ""),
    Frame(13, LIBC, "", 13, "[libc+0x13]", 0, "none", ""),
]
STACKS = [
    Stack(1, "1 2 3 5 6 7 8"),  # an allocation in a fetch in decoding
    Stack(2, "1 2 4 6 7 8"),  # one in a container, which works for the protocol
    Stack(3, "9 8"),  # a lock of the server
    Stack(4, "11 12 6 7 8"),  # a system call
    Stack(5, "10"),
    Stack(6, "1"),  # callers were lost
    Stack(7, "9 1 2 3 5 6 7 8"),  # the lock of an allocation
    Stack(9, "1 5 14 6 7 8"),  # decoding of a session
    Stack(8, "13 3 5 7 8"),  # a nameless function below a named one of another file
]
RESOLVED = Stacks(FRAMES, STACKS)
GROUP = Group("all", "", "", "", (), frozenset({1, 2}))
WINDOWS = [Window(1, None, 0, 10**9), Window(2, None, 10**9, 2 * 10**9)]


def sample(
    user: int | None, count: int = 1, *, phase: str = "handshake", window: int = 1
) -> SampleStack:
    return SampleStack(window, phase, -1, user, None, count)


def filing(row: SampleStack) -> callers.Filing:
    return callers.file_samples([row], RESOLVED, builtin()).filings[0]


@pytest.mark.parametrize(
    ("stack", "category", "caller", "task"),
    [
        (1, "memory", Asker("provider_fetch", "EVP_MD_fetch"), "ASN1_item_d2i_ex"),
        (2, "memory", Asker("tls_protocol", "SSL_accept"), "SSL_accept"),
        (3, "lock_spin", Asker("server", "acl_authenticate"), ""),
        (6, "memory", NOBODY, ""),
        (9, "memory", Asker("certificate", "ASN1_item_d2i_ex"), IN_SESSION),
        (7, "lock_spin", Asker("provider_fetch", "EVP_MD_fetch"), "ASN1_item_d2i_ex"),
    ],
)
def test_a_service_belongs_to_what_called_it(
    stack: int, category: str, caller: Asker, task: str
) -> None:
    """ "Memory 24 %" is no advice; "memory in the fetch of methods" is."""
    found = filing(sample(stack))
    assert (found.category, found.caller, found.task.function) == (category, caller, task)


def test_a_system_call_belongs_to_the_library_that_made_it() -> None:
    found = filing(SampleStack(1, "handshake", 44, 4, 5, 1))
    assert found.category == "kernel_network"
    assert found.caller == Asker("tls_protocol", "BIO_write")


def test_a_phase_that_is_one_category_has_no_callers() -> None:
    assert filing(sample(1, phase="sign"))[2:] == (NOBODY, NOBODY)


def composed(rows: list[SampleStack]) -> Composition:
    filed = callers.file_samples(rows, RESOLVED, builtin())
    of = window_units.of_group(GROUP, WINDOWS)
    totals = {("handshake", "on_cpu"): 1000, ("sign", "on_cpu"): 50}
    made = compose(GROUP, totals, count_by_unit(filed.counts(), of))
    return callers.with_callers(made, filed, of)


def of_category(lines: list[CallerShare], category: str) -> int:
    return sum(line.sample_count for line in lines if line.category == category)


def test_callers_add_up_to_their_categories() -> None:
    rows = [sample(1, 600), sample(2, 300, window=2), sample(3, 96), sample(6, 4)]
    (handshake,) = (one for one in composed(rows).phases if one.phase == "handshake")
    assert handshake.sample_count == 1000
    for share in handshake.shares:
        assert of_category(handshake.callers, share.category) == share.sample_count
    first = handshake.callers[0]
    assert (first.category, first.caller, first.share) == ("memory", "provider_fetch", 0.6)
    assert first.time_ns == pytest.approx(600)
    assert sum(line.share for line in handshake.tasks) == pytest.approx(1)


def test_small_functions_are_one_line() -> None:
    """A report of thousands of functions hides the few that matter."""
    many = [Frame(100 + n, CRYPTO, "", 0, f"X509_small_{n}", 0, "dynsym", "") for n in range(50)]
    stacks = [Stack(100 + n, f"1 {100 + n} 7 8") for n in range(50)]
    resolved = Stacks([*FRAMES, *many], [*STACKS, *stacks])
    rows = [sample(1, 1000), *(sample(100 + n) for n in range(50))]
    filed = callers.file_samples(rows, resolved, builtin())
    of = window_units.of_group(GROUP, WINDOWS)
    made = compose(GROUP, {("handshake", "on_cpu"): 1000}, count_by_unit(filed.counts(), of))
    (phase,) = callers.with_callers(made, filed, of).phases
    (small,) = (line for line in phase.callers if line.function == callers.SEVERAL)
    assert (small.caller, small.sample_count) == ("certificate", 50)


def test_counts_are_those_of_the_composition() -> None:
    rows = [sample(1, 3), sample(2, 5, window=2), sample(4, 7), sample(None, 2), sample(3, 0)]
    filed = callers.file_samples(rows, RESOLVED, builtin())
    assert filed.counts() == count_samples(rows, RESOLVED, builtin())


def test_each_frame_has_the_category_that_it_has_as_a_leaf() -> None:
    """The fast way up a stack must colour frames as the rules do."""
    for phase in ("handshake", "command"):
        for stack in STACKS:
            frames = RESOLVED.frames(stack.stack_id)
            slow = [
                builtin().category(Sample(phase, -1, frames[index:], ()))
                for index in range(len(frames))
            ]
            assert builtin().frame_categories(phase, frames) == slow

# SPDX-License-Identifier: GPL-2.0-only
"""Broken stacks take perf's callers; numbers, phases and leaves stay as they were."""

from collections import Counter

import pytest

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.repair import CUT, repair
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame, OffcpuStack, SampleStack, Stack

CRYPTO, SERVER, LIBC = "/lib/libcrypto.so.3", "/usr/sbin/mariadbd", "/lib/libc.so.6"
PLACES = {
    "aes": (CRYPTO, 0x100), "sha": (CRYPTO, 0x200), "bn": (CRYPTO, 0x300), "sign": (CRYPTO, 0x400),
    "ssl_write": ("/lib/libssl.so.3", 0x10), "ssl_accept": ("/lib/libssl.so.3", 0x20),
    "net_write": (SERVER, 0x10), "dispatch": (SERVER, 0x20), "login": (SERVER, 0x30),
    "sslaccept": (SERVER, 0x40), "poll": (LIBC, 0x10), "start_thread": (LIBC, 0x20),
    "clone3": (LIBC, 0x30), "cut": ("[uprobes]", 0),
}  # fmt: skip
IDS = {name: number for number, name in enumerate(PLACES, 1)}
FRAMES = [
    Frame(
        number, PLACES[name][0], "", PLACES[name][1] + 5, CUT if name == "cut" else name, 5, "", ""
    )
    for name, number in IDS.items()
]
NATIVE, DEEP = 1, 9


class Made:
    """Tables of samples whose stacks are given by names, leaf first."""

    def __init__(self) -> None:
        self.tables = Tables(frames=FRAMES)
        self._ids: dict[str, int] = {}

    def stack(self, names: str) -> int:
        if names not in self._ids:
            self._ids[names] = len(self._ids) + 1
            ids = " ".join(str(IDS[name]) for name in names.split())
            self.tables.stacks.append(Stack(self._ids[names], ids))
        return self._ids[names]

    def native(self, phase: str, names: str, count: int) -> None:
        row = SampleStack(NATIVE, phase, -1, self.stack(names), None, count)
        self.tables.samples = [*self.tables.samples, row]

    def deep(self, phase: str, names: str, count: int) -> None:
        row = SampleStack(DEEP, phase, -1, self.stack(names), None, count)
        self.tables.deep = [*self.tables.deep, row]

    def wait(self, phase: str, names: str) -> None:
        row = OffcpuStack(NATIVE, phase, "blocked_network", 7, self.stack(names), None, 50, 9)
        self.tables.waits.append(row)

    def paths(self) -> Counter[str]:
        """Names of the repaired samples, leaf first."""
        made = repair(self.tables)
        resolved = Stacks(FRAMES, [*self.tables.stacks, *made.stacks])
        counts: Counter[str] = Counter()
        for row in made.samples:
            names = " ".join(frame.symbol for frame in resolved.frames(row.user_stack_id))
            counts[f"{row.phase}: {names}"] += row.sample_count
        return counts


def test_without_perf_nothing_changes() -> None:
    made = Made()
    made.native("record_write", "aes", 10)
    result = repair(made.tables)
    assert result.samples == made.tables.samples
    assert (result.sample_count, result.stacks) == (0, [])


def test_callers_come_in_the_proportion_that_perf_saw() -> None:
    made = Made()
    for _ in range(10):
        made.native("record_write", "aes", 1)
    made.native("record_write", "sha", 4)
    made.native("record_write", "dispatch start_thread", 6)
    made.deep("record_write", "aes ssl_write net_write dispatch start_thread clone3", 70)
    made.deep("record_write", "aes ssl_write dispatch start_thread clone3", 30)
    made.deep("command", "sha dispatch start_thread clone3", 99)  # in another phase
    made.deep("record_write", "aes", 50)  # broken as well
    assert made.paths() == {
        "record_write: aes ssl_write net_write dispatch start_thread": 7,
        "record_write: aes ssl_write dispatch start_thread": 3,
        "record_write: sha": 4,
        "record_write: dispatch start_thread": 6,
    }
    result = repair(made.tables)
    counts = result.sample_count, result.broken_count, result.repaired_count
    assert counts == (20, 14, 10)
    of_perf = {row.user_stack_id for row in result.samples} & result.repaired_ids
    assert of_perf == result.repaired_ids


def test_a_stack_that_a_return_probe_cut_ends_in_what_the_phase_has_in_common() -> None:
    made = Made()
    made.native("sign", "bn", 8)
    made.native("handshake", "sslaccept login dispatch start_thread", 5)
    made.wait("handshake", "poll sslaccept login dispatch start_thread")
    made.deep("sign", "bn sign cut", 3)
    assert made.paths()[f"sign: bn sign {CUT} sslaccept login dispatch start_thread"] == 8


def test_without_agreement_a_cut_stack_is_no_donor() -> None:
    made = Made()
    made.native("sign", "bn", 8)
    made.deep("sign", "bn sign cut", 3)
    assert made.paths() == {"sign: bn": 8}


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_no_sample_is_lost(count: int) -> None:
    made = Made()
    for number in range(1, 6):
        made.native("command", "aes", number * count)
    for share, names in ((1, "ssl_write"), (1, "net_write"), (1000, "ssl_write net_write")):
        made.deep("command", f"aes {names} start_thread clone3", share)
    result = repair(made.tables)
    assert sum(row.sample_count for row in result.samples) == 15 * count
    assert result.repaired_count == result.broken_count == 15 * count

# SPDX-License-Identifier: GPL-2.0-only
"""The check of recorded crypto times must not excuse what it cannot explain."""

import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.tests.bench.crypto.preloaded_clock import can_be_replaced
from tlstax.tests.bench.crypto.second_clock import SUM, Reading, Recording, compare, why_unfit
from tlstax.tests.bench.crypto.traced_clock import readings

US = 1_000
SOURCE = "int inner(void) { return 1; } int outer(void) { return inner() + inner(); }"


@pytest.mark.parametrize(
    ("flags", "passes"),
    [((), True), (("-Wl,-Bsymbolic",), False), (("-Wl,-Bsymbolic-functions",), False)],
)
def test_whether_calls_within_a_library_pass_one_before_it(
    tmp_path: Path, flags: tuple[str, ...], passes: bool
) -> None:
    """Otherwise a check would judge operations whose calls the second clock does not see."""
    library = tmp_path / "library.so"
    command = ["gcc", "-O0", "-shared", "-fPIC", *flags, "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    with Elf(library) as elf:
        assert can_be_replaced(elf, "inner") is passes
        assert not can_be_replaced(elf, "outer")  # nothing in it calls that


def recording(**changes: int) -> Recording:
    """10 signatures of 100 us, 6 of them in 4 chain checks of 150 us."""
    count = {"verify": 10, "certificate": 4, **changes}
    return Recording(count, {"verify": 1000 * US, "certificate": 600 * US})


def test_checks_within_a_chain_check_are_judged_by_the_sum_alone() -> None:
    """A wrong sum, a chain check that was not seen, or too few signature checks must be told."""
    clock = {"verify": Reading(4, 400 * US), "certificate": Reading(4, 1200 * US)}
    lines = compare(recording(), clock, inner_pass=False)
    assert [line.operation for line in lines if line.judged] == [SUM]
    assert all(line.agrees for line in lines)
    assert not compare(recording(), clock)[0].agrees
    assert not compare(recording(certificate=5), clock, False)[-1].agrees
    assert not compare(recording(verify=3), clock, False)[-1].agrees
    slow = {**clock, "certificate": Reading(4, 1400 * US)}
    assert not compare(recording(), slow, False)[-1].agrees


def test_traps_explain_a_difference_only_where_the_ends_of_a_call_are_near() -> None:
    """A probe that is placed too late must not pass as one whose trap takes long."""
    clock = {"verify": Reading(10, 1300 * US, 300 * US, apart_ns=29 * US)}
    assert compare(recording(), clock)[0].agrees
    clock = {"verify": Reading(10, 1300 * US, 300 * US, apart_ns=31 * US)}
    assert not compare(recording(), clock)[0].agrees
    clock = {"verify": Reading(10, 1300 * US)}
    assert not compare(recording(), clock)[0].agrees


@pytest.mark.parametrize(
    ("closure_us", "steal_us", "has_steal", "fit"),
    [(-29, 0, False, True), (-31, 0, False, False), (31, 0, False, False),
     (31, 40, False, False), (31, 40, True, True), (-31, 40, True, False)],
)  # fmt: skip
def test_a_recording_whose_cpu_time_is_wrong_does_not_judge(
    closure_us: int, steal_us: int, has_steal: bool, fit: bool
) -> None:
    """5 % of the chain checks is 30 us. Steal may be in the time of both clocks."""
    before = recording()
    one = Recording(before.count, before.cpu_ns, closure_ns=closure_us * US, steal_ns=steal_us * US)
    clock = {"verify": Reading(10, 1000 * US), "certificate": Reading(4, 600 * US)}
    assert (why_unfit(one, compare(one, clock), has_steal) == "") is fit


def test_losses_of_handshakes_and_recordings_without_operations_do_not_judge() -> None:
    clock = {"verify": Reading(10, 1000 * US), "certificate": Reading(4, 600 * US)}
    lost = Recording({}, {}, losses={"handshake_map_full": 1})
    assert "handshakes were lost" in why_unfit(lost, compare(lost, clock))
    empty = Recording({}, {})
    assert why_unfit(empty, compare(empty, {})) == "no operation was seen"


def test_what_the_readings_of_bpftrace_take_is_taken_off() -> None:
    """`nothing`, the last number, takes 1 us; both ends of a signature are 20 us apart."""
    sums = {
        "@calls": {"0": 10, "5": 1000},
        "@cpu_ns": {"0": 1210 * US, "5": 1000 * US},
        "@before_ns": {"0": 200 * US},
    }
    assert readings(sums) == {"sign": Reading(10, 1200 * US, 190 * US, 0, apart_ns=20 * US)}

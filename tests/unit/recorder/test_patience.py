# SPDX-License-Identifier: GPL-2.0-only
"""The patience with a recorder that does not run, around a suspend of the host and without one.

CLOCK_MONOTONIC stands still while the host sleeps. Before and after, while devices follow, all
processes are frozen for seconds in which it goes on.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
S, MS = 10**9, 10**6
KILLED: Final = 2001  # ms: the beat is more than 2 s old
WRAPPED: Final = ("clock_gettime", "nanosleep", "kill", "getppid")
BEAT_NS: Final = 100 * S
AHEAD_NS: Final = 5 * S


def made_of(folder: Path, name: str, *more: str) -> Path:
    made = folder / f"{name}.so"
    recorder = ROOT / "collectors/recorder"
    command = [
        "clang",
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
    ]
    command += ["-Werror", "-I", str(recorder), "-I", str(ROOT / "probes/bpf"), "-o", str(made)]
    command += [str(ROOT / f"tests/recorder/{name}.c"), *more]
    subprocess.run(command, check=True)
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = [str(ROOT / f"collectors/recorder/{part}.c") for part in ("suspend", "failure")]
    wraps = [f"-Wl,--wrap={name}" for name in WRAPPED]
    folder = tmp_path_factory.mktemp("patience")
    return made_of(folder, "patience", *parts, *wraps, "-Wl,--no-undefined")


@pytest.fixture
def recorder(built: Path, tmp_path: Path) -> Any:
    """A copy: it has read no clock yet."""
    library = ctypes.CDLL(str(shutil.copy(built, tmp_path)))
    for name in ("killed_after", "told_ns", "told_ahead_ns", "used_ns", "resumed_ns"):
        getattr(library, name).restype = ctypes.c_uint64
    return library


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("programs")
    return ctypes.CDLL(str(made_of(folder, "programs_patience")))


def numbers(*values: int) -> list[ctypes.c_uint64]:
    return [ctypes.c_uint64(value) for value in values]


@pytest.mark.parametrize(
    ("slept_at", "slept_ns", "beat_at", "killed"),
    [
        (0, 0, 0, KILLED),
        (0, 0, 2000, 2000 + KILLED),
        (0, 0, 250, 250 + KILLED),
        (1000, 60 * S, 0, 1000 + KILLED),  # it did not thaw with the others
        (1001, 60 * S, 0, 2000 + KILLED),  # the watchdog slept, too, and looks once a second
        (2000, 60 * S, 0, 2000 + KILLED),
        (1000, 5 * MS, 0, KILLED),  # clocks that are not read at one instant
        (1000, 60 * S, 2750, 2750 + KILLED),
    ],
    ids=[
        "none",
        "late",
        "early",
        "asleep",
        "all asleep",
        "late and asleep",
        "nearly",
        "thawed later",
    ],
)
def test_the_watchdog_waits_2_s_from_when_the_host_woke(
    recorder: Any, slept_at: int, slept_ns: int, beat_at: int, killed: int
) -> None:
    assert recorder.killed_after(*numbers(0, 0, 0, 1)) == 0  # it has read the clocks once
    assert recorder.killed_after(*numbers(slept_at, slept_ns, beat_at, 20000)) == killed


@pytest.mark.parametrize(
    ("share", "beat_at", "killed"),
    [
        (0, 0, 21000),  # it looks once a second; 20 s and no longer
        (0, 15000, 15000 + 21000),
        (10, 0, 21000),
        (1000, 0, KILLED),
        (500, 0, KILLED),  # it had 1 s of CPU time
        (100, 0, 7001),  # 0.5 s after the first look at it
    ],
    ids=["starved", "beats once", "nearly starved", "loops", "loops beside another", "slow loop"],
)
def test_a_recorder_that_only_waits_for_a_cpu_is_given_20_s(
    recorder: Any, share: int, beat_at: int, killed: int
) -> None:
    recorder.be_ready(*numbers(share))
    assert recorder.killed_after(*numbers(0, 0, 0, 1)) == 0
    found = recorder.killed_after(*numbers(0, 0, beat_at, 60000))
    assert killed - 1000 <= found <= killed


@pytest.mark.parametrize(
    ("late_ns", "share", "is_starved"),
    [
        (1900 * MS, 1000, False),
        (2100 * MS, 1000, True),
        (9 * S, 950, True),
        (9 * S, 400, False),
        (9 * S, 0, False),  # stopped, frozen, or this is not counted
    ],
)
def test_the_recorder_knows_that_it_starved(
    recorder: Any, late_ns: int, share: int, is_starved: bool
) -> None:
    """The programs stay idle until it says that nothing of before is attached."""
    assert recorder.starved(*numbers(0, 0)) == 0
    told_ns = recorder.told_ns()
    assert recorder.starved(*numbers(late_ns, share)) == is_starved
    if is_starved:
        assert recorder.told_ns() < told_ns + 2 * S
        awake = ctypes.c_uint64.in_dll(recorder, "awake_ns").value
        assert recorder.resumed_ns() == awake
        assert recorder.starved(*numbers(0, 0)) == 0


@pytest.mark.parametrize(
    ("frozen_ns", "slept_ns", "is_missed"),
    [
        (1900 * MS, 0, False),
        (2100 * MS, 0, True),
        (2100 * MS, 5 * MS, True),
        (2100 * MS, 20 * MS, False),
        (9 * S, 3600 * S, False),
    ],
)
def test_the_recorder_misses_what_was_no_suspend(
    recorder: Any, frozen_ns: int, slept_ns: int, is_missed: bool
) -> None:
    """Twice: a suspend excuses one interval, not the next. The programs are idle from then on."""
    assert recorder.missed(*numbers(0, 0)) == 0
    assert recorder.missed(*numbers(frozen_ns, slept_ns)) == is_missed
    assert recorder.missed(*numbers(2100 * MS, 0)) == 1
    awake = ctypes.c_uint64.in_dll(recorder, "awake_ns").value
    slept = ctypes.c_uint64.in_dll(recorder, "slept_ns").value
    assert (recorder.told_ns(), recorder.told_ahead_ns()) == (awake - 2100 * MS, slept)
    assert (recorder.resumed_ns(), recorder.told_ahead_ns()) == (awake, slept)


def test_a_watchdog_that_was_killed_has_used_its_cpu_time(recorder: Any) -> None:
    """A total that falls would make the last window cost less than nothing."""
    used_ns = recorder.used_ns(0)
    assert used_ns > 0
    assert recorder.used_ns(1) == used_ns


@pytest.mark.parametrize(
    ("beat_ns", "since_ns", "slept_ns", "is_abandoned"),
    [
        (0, 60 * S, 0, False),  # nobody has told yet
        (BEAT_NS, -S, 0, False),
        (BEAT_NS, 2 * S, 0, False),
        (BEAT_NS, 2 * S + 1, 0, True),
        (BEAT_NS, 2 * S + 1, 9 * MS, True),
        (BEAT_NS, 2 * S + 1, 11 * MS, False),
        (BEAT_NS, 30 * S, 3600 * S, False),
        (BEAT_NS, 30 * S + 1, 3600 * S, True),
    ],
)
def test_programs_are_idle_without_a_beat_but_around_a_suspend(
    programs: Any, beat_ns: int, since_ns: int, slept_ns: int, is_abandoned: bool
) -> None:
    now_ns = BEAT_NS + since_ns
    now = numbers(beat_ns, AHEAD_NS, now_ns, now_ns + AHEAD_NS + slept_ns)
    assert programs.abandoned(*now) == is_abandoned

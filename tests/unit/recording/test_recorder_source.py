# SPDX-License-Identifier: GPL-2.0-only
"""The recorder in C and its Python side mean the same: numbers, names and limits of both."""

import re
import subprocess
from pathlib import Path

import pytest

from tlstax import ExitCode, __version__
from tlstax.collectors.capture.syscalls_arm64 import ARM64_CALLS, number_of_x86
from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.placement.model import MAX_FUNCTIONS
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.function_points import POINTS_MOST
from tlstax.probes.model import Level
from tlstax.tests.loader import program_memory

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "collectors/recorder"
SYSTEM_CALLS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
GENERIC_CALLS = Path("/usr/include/asm-generic/unistd.h")
ARM64_WANTS = ("RENAMEAT", "NEW_STAT", "SET_GET_RLIMIT", "TIME32_SYSCALLS", "SYS_CLONE3")
"""Of __ARCH_WANT_*, what asm/unistd.h of arm64 defines before it includes the generic one."""
FIRST_ALIKE = 424
"""From here on system calls have one number on all machines."""


def text_of(name: str) -> str:
    return (FOLDER / name).read_text()


def test_system_calls_wait_for_the_same() -> None:
    names = dict(re.findall(r"#define __NR_(\w+) (\d+)", SYSTEM_CALLS.read_text()))
    source = text_of("syscalls.c")
    numbers = {f"SYS_{name}": int(number) for name, number in names.items()}
    numbers |= {n: int(v) for n, v in re.findall(r"#define (CALL_\w+) (\d+)", source)}
    kinds = bytearray(program_memory.MAX_SYSCALLS)
    for name, kind in re.findall(r"\{(\w+), WAIT_(\w+)\}", source):
        assert kinds[numbers[name]] == 0, f"{name} stands twice"
        kinds[numbers[name]] = program_memory.Wait[kind]
    assert bytes(kinds) == program_memory.wait_kinds()


def generic_calls() -> dict[str, int]:
    """The numbers of arm64 by name; some names are for 64 bits only, which a compiler knows."""
    wants = [f"-D__ARCH_WANT_{name}" for name in ARM64_WANTS]
    command = ["clang", "-E", "-dM", *wants, "-x", "c", str(GENERIC_CALLS)]
    macros = subprocess.check_output(command, text=True)
    values: dict[str, str] = dict(re.findall(r"#define (__NR\w+) (\w+)", macros))
    calls = {name: values.get(value, value) for name, value in values.items()}
    return {
        name.removeprefix("__NR_"): int(value)
        for name, value in calls.items()
        if name.startswith("__NR_") and value.isdecimal()
    }


@pytest.mark.skipif(not SYSTEM_CALLS.exists(), reason="headers of x86-64 are on x86-64 hosts only")
def test_system_calls_of_arm64_have_the_numbers_that_their_names_have_on_x86() -> None:
    names = dict(re.findall(r"#define __NR_(\w+) (\d+)", SYSTEM_CALLS.read_text()))
    calls = {name: number for name, number in generic_calls().items() if name in names}
    assert len(calls) > 280
    assert {name: number_of_x86(number) for name, number in calls.items()} == {
        name: int(names[name]) for name in calls
    }
    assert set(ARM64_CALLS) == {number for number in calls.values() if number < FIRST_ALIKE}


def test_exit_codes_are_those_of_tlstax() -> None:
    codes = dict(re.findall(r"EXIT_CODE_(\w+) = (\d+)", text_of("failure.h")))
    assert {name: int(code) for name, code in codes.items()}.items() <= {
        code.name: int(code) for code in ExitCode
    }.items()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PLAN_SITES_MOST", layout.MAX_SITES),
        ("PLAN_SPANS_MOST", definition().number("SPANS_MOST")),
        ("PLAN_FUNCTIONS_MOST", MAX_FUNCTIONS - 1),
        ("PLAN_POINTS_MOST", POINTS_MOST),
    ],
)
def test_limits_are_the_same(name: str, value: int) -> None:
    assert re.findall(rf"{name} = (\d+)", text_of("plan.h")) == [str(value)]


def test_names_in_a_plan_are_the_same() -> None:
    source = text_of("plan.c")
    levels, accessors = (
        re.findall(r'"(\w+)"', source.partition(start)[2].partition("}")[0])
        for start in ("level_names[LEVELS] = {", "accessors[ACCESSORS] = {")
    )
    assert levels == [level.name.lower() for level in Level]
    assert set(accessors) == set(program_memory.ACCESSORS)


def test_it_has_the_version_of_tlstax() -> None:
    said = subprocess.check_output([recorder_path(), "--version"], text=True)
    assert said == f"tlstax-recorder {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--plan"],
        ["--plan", "x"],
        ["--plan", "x", "--pid", "none"],
        ["--plan", "x", "--pid", "1", "--for", "1"],
        ["--plan", "x", "--pid", "1", "--window", "1ms"],
        ["--plan", "x", "--pid", "1", "--queue", "1K"],
        ["--plan", "x", "--pid", "1", "more"],
        ["--plan", "/nowhere/x", "--pid", "1"],
        ["--plan", "/", "--pid", "1"],
        ["--prices", "--traced"],
    ],
)
def test_wrong_arguments_are_named(arguments: list[str]) -> None:
    done = subprocess.run(
        [recorder_path(), *arguments], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == ""
    assert done.stderr.startswith("tlstax-recorder: ")


def test_help_names_every_option() -> None:
    said = subprocess.check_output([recorder_path(), "--help"], text=True)
    names = re.findall(r'\{"([a-z-]+)", \w+_argument', text_of("options.c"))
    assert len(names) > 8
    assert [name for name in names if f"--{name}" not in said] == []


def test_it_has_no_paths_of_the_build() -> None:
    content = recorder_path().read_bytes()
    assert str(ROOT).encode() not in content

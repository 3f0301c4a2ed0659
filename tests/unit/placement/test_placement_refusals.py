# SPDX-License-Identifier: GPL-2.0-only
"""What the planner refuses, and that it says so in one clear sentence."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.process.build_id import build_id_of, require_same_build
from tlstax.collectors.process.target import Target, require_64_bit
from tlstax.probes.definitions import load_definitions

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]
MAIN = "int main(void) { return 0; }"
E_MACHINE_OFFSET, S390 = 18, b"\x16\x00"
OWN = """
id = "own"
kind = "server"
name = "Own"
[detect]
objects = ["program"]
symbols = ["serve"]
version = { text = "Own ", pattern = 'Own \\d+' }
[[boundary]]
id = "command"
action = "phase"
phase = "command"
level = "command"
functions = ["step"]
missing = "Commands are not seen."
"""
SERVE = 'const char version[] = "Own 7"; int serve(int a) { return a; }'


@pytest.fixture
def plan_of(
    target_of: MakeTarget, libraries: dict[str, Path], tmp_path: Path
) -> Callable[..., Plan]:
    """Plan a program with the definition above, beside libssl."""

    def run(*paths: Path) -> Plan:
        (tmp_path / "own.toml").write_text(OWN)
        target = target_of(*paths, libraries["libssl"], libraries["libcrypto"])
        return plan(target, load_definitions(tmp_path))

    return run


def test_a_function_that_was_inlined_away(compile_c: Compile, plan_of: Callable[..., Plan]) -> None:
    inlined = "static int step(int a) { return a * 3; }" + SERVE.replace("a; }", "step(a); }")
    (missing,) = plan_of(compile_c(inlined + MAIN, "-O2")).missing
    assert (missing.boundary, missing.functions) == ("command", ("step",))
    assert missing.consequence == "Commands are not seen."
    assert missing.why == "no function has this name: another version, stripped, or inlined"


def test_a_function_whose_code_does_not_disassemble(
    compile_c: Compile, plan_of: Callable[..., Plan]
) -> None:
    odd = (
        'asm(".text\\n.globl step\\n.type step,@function\\nstep:\\n.byte 6\\nret\\n.size step,2");'
    )
    (missing,) = plan_of(compile_c(SERVE + odd + MAIN)).missing
    assert missing.why == "its code does not disassemble"


def test_a_version_whose_fields_are_not_known(
    compile_c: Compile, target_of: MakeTarget, tmp_path: Path
) -> None:
    source = """
    const char text[] = "OpenSSL 3.9.0 1 Jan 2031";
    int SSL_do_handshake(long *s) { return s[3] + s[4]; }
    int EVP_PKEY_generate(long *s) { return s[3] * s[4]; }
    int SSL_version(long *s) { return s[5] * 3; }
    """
    library = compile_c(source, "-shared", "-fPIC", name="libssl.so.3")
    planned = plan(target_of(compile_c(MAIN), library), load_definitions())
    (note,) = planned.notes
    assert note.startswith("OpenSSL 3.9.0 is recognised, but the location of ")
    assert "ssl_version" in note
    assert "ssl_version" in {missing.boundary for missing in planned.missing}


def test_two_copies_of_a_library_are_named(
    target_of: MakeTarget, libraries: dict[str, Path], compile_c: Compile, tmp_path: Path
) -> None:
    copy = tmp_path / "libssl.so.3"
    copy.write_bytes(libraries["libssl"].read_bytes())
    planned = plan(
        target_of(compile_c(MAIN), libraries["libssl"], libraries["libcrypto"], copy),
        load_definitions(),
    )
    assert planned.notes == (
        f"2 copies of one library ({libraries['libssl']}, {copy}): each is probed",
    )


def test_a_program_for_another_machine(
    compile_c: Compile, plan_of: Callable[..., Plan], tmp_path: Path
) -> None:
    content = bytearray(compile_c(SERVE + MAIN).read_bytes())
    content[E_MACHINE_OFFSET : E_MACHINE_OFFSET + 2] = S390
    other = tmp_path / "program"
    other.write_bytes(content)
    with pytest.raises(TlstaxError, match="not for x86-64 or arm64 but for") as caught:
        require_64_bit(1, other)
    assert caught.value.exit_code is ExitCode.TARGET
    with pytest.raises(TlstaxError, match="not for x86-64 or arm64 but for S390"):
        plan_of(other)


def test_a_file_that_was_overwritten_since_the_plan(
    compile_c: Compile, target_of: MakeTarget
) -> None:
    path = compile_c(MAIN)
    (mapped,) = target_of(path).objects
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert build_id_of(descriptor) == mapped.build_id != ""
        require_same_build(mapped, descriptor)
        with pytest.raises(TlstaxError, match=r"build-id was 00 when .* overwritten"):
            require_same_build(replace(mapped, build_id="00"), descriptor)
    finally:
        os.close(descriptor)


def test_the_build_id_is_that_of_the_elf_reader(libraries: dict[str, Path]) -> None:
    for path in libraries.values():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with Elf(path) as elf:
                assert build_id_of(descriptor) == elf.build_id
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\0" * 64, b"\xff" * 4096])
def test_what_is_no_elf_file_has_no_build_id(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert build_id_of(descriptor) == ""
    finally:
        os.close(descriptor)

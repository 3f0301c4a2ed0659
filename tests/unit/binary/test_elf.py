# SPDX-License-Identifier: GPL-2.0-only
"""ELF files: real ones, and what happens with damaged ones."""

import re
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.import_stubs import imported_name
from tlstax.collectors.binary.source_files import SourceFiles
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.binary.unwind_table import UnwindTable

Compile = Callable[..., Path]
SOURCE = """
#include <stdio.h>
__attribute__((noinline)) int first(int a) { puts("1"); return a + 1; }
__attribute__((noinline)) int second(int a) { puts("2"); return first(a) * 2; }
int main(void) { return second(3); }
"""


def test_build_id_is_what_the_linker_wrote(compile_c: Compile) -> None:
    path = compile_c(SOURCE, "-Wl,--build-id=0x00112233445566778899")
    with Elf(path) as elf:
        assert elf.build_id == "00112233445566778899"
    with Elf(compile_c(SOURCE, "-Wl,--build-id=none", name="without")) as elf:
        assert elf.build_id == ""


def test_headers_are_those_that_another_reader_finds(libraries: dict[str, Path]) -> None:
    assert libraries
    for path in libraries.values():
        with Elf(path) as elf, path.open("rb") as file:
            other = ELFFile(file)
            loaded = [part.header for part in other.iter_segments() if part["p_type"] == "PT_LOAD"]
            assert elf.machine == other["e_machine"]
            assert [part.address for part in elf.segments] == [part["p_vaddr"] for part in loaded]
            assert [part.offset for part in elf.segments] == [part["p_offset"] for part in loaded]
            assert [part.name for part in elf.headers.sections] == [
                part.name for part in other.iter_sections()
            ]
            note = other.get_section_by_name(".note.gnu.build-id")
            assert isinstance(note, NoteSection)
            assert elf.build_id == next(iter(note.iter_notes()))["n_desc"]


def test_counts_that_do_not_fit_into_the_header(small_program: bytes, tmp_path: Path) -> None:
    """A program with 65,280 sections, or a core file: the first section header has them."""
    with Elf(_written(tmp_path, small_program)) as elf:
        expected = elf.headers
    content = bytearray(small_program)
    (at,) = struct.unpack_from("<Q", content, 40)
    segments, sections, names = struct.unpack_from("<H2xHH", content, 56)
    struct.pack_into("<H2xHH", content, 56, 0xFFFF, 0, 0xFFFF)
    struct.pack_into("<QII", content, at + 32, sections, names, segments)
    with Elf(_written(tmp_path, bytes(content))) as elf:
        assert elf.headers.segments == expected.segments
        assert [part.name for part in elf.headers.sections] == [
            part.name for part in expected.sections
        ]


def _written(folder: Path, content: bytes) -> Path:
    (folder / "program").write_bytes(content)
    return folder / "program"


@pytest.mark.parametrize("flags", [["-pie", "-fPIE"], ["-no-pie"], ["-static"]])
def test_offsets_and_addresses(compile_c: Compile, flags: list[str]) -> None:
    with Elf(compile_c(SOURCE, *flags)) as elf:
        (symbol,) = elf.find(re.compile("second"))
        offset = elf.to_offset(symbol.address)
        assert offset is not None
        assert elf.to_address(offset) == symbol.address
        assert elf.code_at(symbol.address, 8) == elf.data[offset : offset + 8]
        assert elf.to_offset(1 << 60) is None
        assert elf.code_at(1 << 60, 8) == b""


def test_find_reads_dynsym_when_stripped(compile_c: Compile) -> None:
    path = compile_c(SOURCE, "-rdynamic", "-s")
    with Elf(path) as elf:
        assert elf.section(".symtab") is None
        assert [symbol.name for symbol in elf.find(re.compile("first|second"))] == [
            "first",
            "second",
        ]


def test_thirty_thousand_symbols_are_quick(tmp_path: Path) -> None:
    source = tmp_path / "many.s"
    with source.open("w") as file:
        for number in range(30_000):
            name = f"function_number_{number}"
            file.write(f".globl {name}\n.type {name}, @function\n{name}: ret\n.size {name}, 1\n")
    library = tmp_path / "many.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-s", "-o", library, source], check=True)
    times_s = []
    for _ in range(3):
        start = time.process_time()
        with Elf(library) as elf:
            (symbol,) = elf.find(re.compile("function_number_17"))
        times_s.append(time.process_time() - start)
    assert symbol.size == 1
    assert min(times_s) < 0.2


def test_unwind_table_has_the_bounds_that_the_symbols_have(libraries: dict[str, Path]) -> None:
    with Elf(libraries["libcrypto"]) as elf:
        unwind = UnwindTable(elf)
        assert len(unwind) > 5000
        wrong = []
        for symbol in elf.find(re.compile(r"EVP_\w+")):
            bounds = unwind.covering(symbol.address)
            if bounds is None or bounds != (symbol.address, symbol.address + symbol.size):
                wrong.append((symbol, bounds))
        assert wrong == []


def test_unwind_table_survives_stripping(compile_c: Compile) -> None:
    path = compile_c(SOURCE)
    with Elf(path) as elf:
        symbols = elf.find(re.compile("first|second"))
    subprocess.run(["strip", path], check=True)
    with Elf(path) as elf:
        unwind = UnwindTable(elf)
        for symbol in symbols:
            bounds = unwind.covering(symbol.address + 1)
            assert bounds == (symbol.address, symbol.address + symbol.size)
        assert unwind.covering(0) is None


def exercise(path: Path) -> None:
    """Everything the product asks of a file."""
    with Elf(path) as elf:
        elf.find(re.compile("main|puts"))
        list(elf.text_around(b"GCC"))
        unwind = UnwindTable(elf)
        for index in range(min(len(unwind), 50)):
            if bounds := unwind.entry(index):
                elf.code_at(bounds.start, min(4096, max(0, bounds.end - bounds.start)))
        for address in (0, 0x1000, 0x1139, 1 << 63):
            unwind.covering(address)
            unwind.gap(address)
            elf.to_address(address)
            symbols = ObjectSymbols(elf, Path("/proc/self/root"), str(path))
            symbols.find(address)
            symbols.close()
            imported_name(elf, address)
        for section in (".plt", ".plt.sec", ".plt.got"):
            if stubs := elf.section(section):
                imported_name(elf, stubs.address + 16)
        SourceFiles(elf).of(0x1000, 0x2000)


def refusal(path: Path) -> TlstaxError | None:
    """The error that a file gives, None when it is read."""
    try:
        exercise(path)
    except TlstaxError as error:
        return error
    return None


def test_truncated_files_are_one_clear_error(compile_c: Compile, tmp_path: Path) -> None:
    whole = compile_c(SOURCE).read_bytes()
    cut = tmp_path / "cut"
    refused = 0
    for size in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 60)]:
        cut.write_bytes(whole[:size])
        error = refusal(cut)
        refused += error is not None
        assert error is None or error.exit_code is ExitCode.TARGET
        assert error is None or str(cut) in error.what
    assert refused > 20


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=6))
def test_flipped_bytes_never_leave_a_traceback(
    small_program: bytes, tmp_path: Path, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(small_program)
    for position, bits in flips:
        # Half of the flips go where it hurts: the headers, and the section table at the end.
        place = position % len(content) if position & 1 else position % 1024
        content[place if position & 2 else -1 - place] ^= bits
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    error = refusal(damaged)
    assert error is None or error.exit_code is ExitCode.TARGET


@pytest.fixture(scope="module")
def small_program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("small")
    (directory / "a.c").write_text(SOURCE)
    output = directory / "a"
    subprocess.run(["gcc", "-O1", "-rdynamic", "-o", output, directory / "a.c"], check=True)
    return output.read_bytes()


def test_other_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text"
    for content, reason in [
        (b"", "empty"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"\x7fELF", "truncated"),
        (b"\x7fELF\x01\x01" + bytes(100), "not a 64-bit"),
        (b"\x7fELF\x02\x02" + bytes(100), "little-endian"),
    ]:
        text.write_bytes(content)
        with pytest.raises(TlstaxError) as caught:
            Elf(text)
        assert reason in caught.value.why
    with pytest.raises(TlstaxError, match="No such file"):
        Elf(tmp_path / "absent")

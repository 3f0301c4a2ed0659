# SPDX-License-Identifier: GPL-2.0-only
"""Which parts of a file go over the line: debugging sections, often most of it, stay behind."""

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.file_images import kept_image
from tlstax.collectors.process.mappings import MAPS_LINE
from tlstax.collectors.recording.stream.frames import Reading, read_frames
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.image import Image
from tlstax.tests.unit.recording.streams import KNOWN
from tlstax.tests.unit.remote.conftest import PROGRAM

SOURCE = """
#include <stdio.h>
int main(void) { return puts("ready") < 0 || fflush(stdout) || getchar(); }
"""
NEEDED = {".text", ".symtab", ".strtab", ".shstrtab", ".eh_frame", ".dynsym", ".note.gnu.build-id"}
Process = subprocess.Popen[bytes]


@pytest.fixture(params=[("-g",), ("-g", "-gz")], ids=["plain", "compressed"])
def program(request: pytest.FixtureRequest, compile_c: Callable[..., Path]) -> Path:
    """A program with debugging sections."""
    path = compile_c(SOURCE, *request.param, "-Wl,--build-id")
    debugging, others = sections_of(path)
    assert {".debug_info", ".debug_abbrev", ".debug_str", ".debug_line"} <= set(debugging)
    assert set(others) >= NEEDED
    return path


@pytest.fixture
def running(program: Path, spawn: Callable[..., Process]) -> Process:
    """It runs, until its input ends."""
    process = spawn([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def sections_of(path: Path) -> tuple[dict[str, slice], dict[str, slice]]:
    """Where the debugging sections are in a file, and where all others are."""
    debugging: dict[str, slice] = {}
    others: dict[str, slice] = {}
    with path.open("rb") as file:
        for each in ELFFile(file).iter_sections():
            if each["sh_type"] not in ("SHT_NULL", "SHT_NOBITS"):
                to = debugging if each.name.startswith(".debug") else others
                to[each.name] = slice(each["sh_offset"], each["sh_offset"] + each["sh_size"])
    return debugging, others


def test_no_byte_of_a_debugging_section_is_sent(program: Path, running: Process) -> None:
    maps = Path(f"/proc/{running.pid}/maps").read_text().splitlines()
    found = [match for line in maps if (match := MAPS_LINE.fullmatch(line))]
    start = next(match[1] for match in found if match[7] == str(program) and "x" in match[3])
    request = f"file {running.pid} {start}\n".encode()
    done = subprocess.run([PROGRAM, "--serve"], input=request, capture_output=True, check=True)
    content = program.read_bytes()
    is_sent = bytearray(len(content))
    for frame in read_frames(io.BytesIO(done.stdout), Reading()):
        if frame.type == KNOWN.number("PART"):
            offset = int(KNOWN.layout("part").from_buffer_copy(frame.content).offset)
            part = frame.content[KNOWN.structures["stream_part"].size_bytes :]
            assert content[offset : offset + len(part)] == part
            is_sent[offset : offset + len(part)] = b"\1" * len(part)
    debugging, others = sections_of(program)
    assert {name for name, where in debugging.items() if any(is_sent[where])} == set()
    assert {name for name, where in others.items() if not all(is_sent[where])} == set()


def test_what_is_kept_here_has_nothing_in_their_places(
    program: Path, running: Process, connection: Connection, tmp_path: Path
) -> None:
    Image(tmp_path / "image", connection).add_process(running.pid, (), lambda _text: None)
    with Elf(program) as elf:
        kept = kept_image(elf.build_id)
    assert kept
    there, here = program.read_bytes(), kept.read_bytes()
    debugging, others = sections_of(program)
    assert {name for name, where in debugging.items() if any(here[where])} == set()
    assert {name for name, where in others.items() if here[where] != there[where]} == set()

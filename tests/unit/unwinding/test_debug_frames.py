# SPDX-License-Identifier: GPL-2.0-only
"""Code whose call frame information is in a separate debug file only: its callers would be lost."""

import ctypes
import os
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.unwinding import debug_frames, table_cache
from tlstax.collectors.unwinding.debug_frames import debug_file, frames_of, identity
from tlstax.collectors.unwinding.file_table import FileTable, build
from tlstax.collectors.unwinding.process_tables import Layout, lay_out, maps_of
from tlstax.collectors.unwinding.row_format import Kind
from tlstax.tests.unit.unwinding.test_process_tables import found_row
from tlstax.tests.unit.unwinding.test_reference import compare

SOURCE = """
#include <alloca.h>
int sink(char *, int);
int bare_leaf(int n) { return n * 3; }
int bare_calls(int n) { char room[200]; return sink(room, n) + sink(room, n + 1); }
int bare_grows(int n) { char *room = alloca(n); return sink(room, n) + n; }
int bare_many(int a, int b, int c, int d)
{
	char room[5000];
	int x = sink(room, a), y = sink(room, b), z = sink(room, c);
	return x * y * z * d + sink(room, x) * a * b;
}
int sink(char *room, int n) { room[0] = n; __asm__ volatile("" ::"r"(room) : "memory"); return n; }
"""
FLAGS = ("-shared", "-fPIC", "-O2", "-g", "-fno-asynchronous-unwind-tables", "-nostdlib")


@pytest.fixture(params=["plain", "compressed"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """(stripped library, the root that has its debug file)."""
    whole, stripped, root = tmp_path / "whole.so", tmp_path / "bare.so", tmp_path / "root"
    source = tmp_path / "bare.c"
    source.write_text(SOURCE)
    sized = [*FLAGS, "-fno-inline", "-Wl,--build-id=sha1", "-o", str(whole)]
    subprocess.run(["gcc", *sized, str(source)], check=True)
    with Elf(whole) as elf:
        build_id = elf.build_id
    debug = root / "usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    kind = "zlib" if request.param == "compressed" else "none"
    keep = ["objcopy", "--only-keep-debug", f"--compress-debug-sections={kind}"]
    subprocess.run([*keep, str(whole), str(debug)], check=True)
    subprocess.run(["strip", "-o", stripped, whole], check=True)
    with Elf(debug) as elf:
        section = elf.section(".debug_frame")
        assert section is not None
        assert section.compressed == (request.param == "compressed")
    return stripped, root


FUNCTIONS = 5
FROM_INSTRUCTIONS = 1
"""Without call frame information the rows of .text come from its instructions, in one piece."""


def table_of(path: Path, root: Path) -> FileTable | None:
    with Elf(path) as elf:
        return build(elf, frames_of(debug_file(elf.build_id, root), elf.build_id))


def test_every_row_of_a_debug_file(library: tuple[Path, Path]) -> None:
    path, root = library
    with Elf(path) as elf:
        bare = build(elf)
        assert bare is not None
        assert bare.functions_count == FROM_INSTRUCTIONS, "it has frame information of its own"
        debug = debug_file(elf.build_id, root)
    assert debug is not None
    table = table_of(path, root)
    assert table is not None
    assert table.damaged_count == 0
    assert table.functions_count == FUNCTIONS
    seen = compare(debug, table, 1, is_debug=True)
    assert seen["compared"] > 20
    assert not seen["not compared"]


def test_a_debug_file_of_another_build_is_not_used(library: tuple[Path, Path]) -> None:
    path, root = library
    with Elf(path) as elf:
        debug = debug_file(elf.build_id, root)
        assert debug is not None
        assert frames_of(debug, elf.build_id)[0]
        assert frames_of(debug, "00" * 20) == (b"", 0)
        content = bytearray(debug.read_bytes())
        for size in (0, 40, len(content) // 2):
            debug.write_bytes(content[:size])
            assert frames_of(debug, elf.build_id) == (b"", 0)
    assert debug_file("", root) is None
    assert debug_file("ffff", root) is None


def test_no_length_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For zlib 0 is no limit: a debug file in a container could fill the memory."""
    content = struct.pack("<IIQQ", 1, 0, 0, 1) + zlib.compress(bytes(1 << 20))
    monkeypatch.setattr(zlib, "decompressobj", lambda: pytest.fail("it was expanded"))
    assert debug_frames._uncompressed(content) == b""


def test_a_process_gets_them(
    library: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a table that was kept before the debug file was installed is not used any more."""
    path, root = library
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loaded = ctypes.CDLL(str(path))
    address = ctypes.cast(loaded.bare_many, ctypes.c_void_p).value
    assert address is not None
    lay_out(os.getpid(), maps_of(os.getpid()), Layout())
    with Elf(path) as elf:
        kept = table_cache.kept_table(elf.build_id)
    assert kept is not None
    assert kept.functions_count == FROM_INSTRUCTIONS
    monkeypatch.setattr(debug_frames, "_ROOT", root / "usr/lib/debug/.build-id")
    after = lay_out(os.getpid(), maps_of(os.getpid()), Layout())
    row = row_at(after.layout, after.words, address)
    assert isinstance(row, int)
    assert row >> 8 & 7 == Kind.SP
    with Elf(path) as elf:
        debug = identity(debug_file(elf.build_id, root))
        assert debug
        kept = table_cache.kept_table(elf.build_id, debug)
        assert kept is not None
        assert kept.functions_count == FUNCTIONS
        assert table_cache.kept_table(elf.build_id, f"{debug}0") is None


def row_at(layout: Layout, words: bytes, address: int) -> object:
    return found_row(layout, np.frombuffer(words, np.uint32), address)

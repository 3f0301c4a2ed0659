# SPDX-License-Identifier: GPL-2.0-only
"""Tables of a whole process: a wrong offset here gives every address of a file a wrong caller."""

import ctypes
import os
import re
import struct
import subprocess
import zlib
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture.vocabulary import WALK_LOSS_KINDS
from tlstax.collectors.process.target import Target, open_target
from tlstax.collectors.recording.programs import names as program_names
from tlstax.collectors.unwinding import file_table, process_tables, table_cache
from tlstax.collectors.unwinding.file_table import build, to_bytes
from tlstax.collectors.unwinding.process_tables import (
    RANGE,
    RANGES_MOST,
    Layout,
    SharedTables,
    lay_out,
    maps_of,
)
from tlstax.collectors.unwinding.row_format import (
    OFFSET_SHIFT,
    RULE_FORMAT,
    RULES_MOST,
    Kind,
    Rule,
    RuleKind,
    Saved,
)
from tlstax.tests.loader import walker

LIBC = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")
HEADER = Path(__file__).resolve().parents[3] / "probes/bpf/unwind.h"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tlstax" / "unwind"


def found_row(layout: Layout, words: np.ndarray, address: int) -> int | Rule:
    """The row or rule for an address of this process, as the programs in the kernel find it."""
    for start, end, base, index, buckets in RANGE.iter_unpack(layout.ranges):
        if start <= address < end and buckets:
            bucket, low = divmod((address - base) % (1 << 64), 256)
            assert bucket < buckets
            first, behind = words[index + bucket], words[index + bucket + 1]
            at = int(first) - 1
            while at + 1 < behind and (words[at + 1] & 0xFF) <= low:
                at += 1
            word = int(words[at])
            if word >> 8 & 7 == Kind.RULE:
                return Rule(*RULE_FORMAT.unpack(layout.rules[word >> OFFSET_SHIFT]))
            return word & ~0xFF
    raise AssertionError(f"nothing is mapped at {address:#x}")


def test_rows_of_this_process(cache: Path) -> None:
    maps = maps_of(os.getpid())
    added = lay_out(os.getpid(), maps, Layout())
    words = np.frombuffer(added.words, np.uint32)
    assert len(words) == added.layout.words_count
    assert len(added.layout.ranges) == RANGES_MOST * RANGE.size
    line = next(line for line in maps.splitlines() if line.endswith("/libc.so.6"))
    mapped, offset = int(line.split("-")[0], 16), int(line.split()[2], 16)
    with Elf(LIBC) as elf:
        table = build(elf)
        first = elf.to_address(offset)
    assert table is not None
    assert first is not None
    for address in range(first, first + 0x20000, 7):
        word = table.row(address)
        rule = table.rules[word >> OFFSET_SHIFT] if word >> 8 & 7 == Kind.RULE else word & ~0xFF
        assert found_row(added.layout, words, mapped + address - first) == rule
    assert list(cache.iterdir())


def test_a_library_that_is_opened_later_is_added(cache: Path) -> None:
    maps = maps_of(os.getpid())
    without = "\n".join(line for line in maps.splitlines() if "/libc.so.6" not in line)
    before = lay_out(os.getpid(), without, Layout())
    after = lay_out(os.getpid(), maps, before.layout)
    assert after.first_word == before.layout.words_count
    assert len(after.words) == 4 * (after.layout.words_count - after.first_word) > 10_000
    assert before.layout.files.items() <= after.layout.files.items()
    again = lay_out(os.getpid(), maps, after.layout)
    assert again.words == b""
    assert again.layout == after.layout


def test_processes_with_the_same_files_share_tables(
    cache: Path, tls_process: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that come one after the other: only the first one's tables are read."""
    shared = SharedTables()
    first = shared.lay_out(tls_process.pid, maps_of(tls_process.pid), tls_process.objects)
    own = open_target(os.getpid())
    second = shared.lay_out(own.pid, maps_of(own.pid), own.objects)
    assert second.first_word == 0
    assert second.words.startswith(first.words)
    alone = lay_out(own.pid, maps_of(own.pid), Layout()).layout
    assert alone.files.keys() == second.layout.files.keys(), "of this process alone"

    def refuse(*_: object) -> None:
        raise AssertionError("a child was started")

    monkeypatch.setattr(process_tables, "run_in_child", refuse)
    again = shared.lay_out(tls_process.pid, maps_of(tls_process.pid), tls_process.objects)
    assert again.words == second.words
    assert again.layout.ranges == first.layout.ranges
    assert again.layout.files == first.layout.files


def test_a_file_that_was_replaced_is_read_again() -> None:
    """A library that is closed, replaced and opened again may have the inode of the old one."""
    (mapped,) = {each for each in open_target(os.getpid()).objects if each.name == "libc.so.6"}
    assert mapped.is_unchanged
    assert not replace(mapped, modified_ns=mapped.modified_ns + 1).is_unchanged
    assert not replace(mapped, file_identity=(0, 1)).is_unchanged
    assert not replace(mapped, open_path="/nowhere").is_unchanged


def test_a_table_that_finds_no_room_is_named(cache: Path) -> None:
    added = lay_out(os.getpid(), maps_of(os.getpid()), Layout(), words_most=1000)
    reasons = {placed.missing for placed in added.layout.files.values()}
    assert "no room for its table" in reasons
    assert added.layout.words_count <= 1000


def test_kept_tables(cache: Path) -> None:
    with Elf(LIBC) as elf:
        table = build(elf)
    assert table is not None
    assert table_cache.kept_table(table.build_id) is None
    table_cache.keep_table(table)
    kept = table_cache.kept_table(table.build_id)
    assert kept is not None
    assert to_bytes(kept) == to_bytes(table)
    (path,) = cache.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    body = bytearray(path.read_bytes())[16:]
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    assert table_cache.kept_table(table.build_id) is None
    # One that was made for another file: its checksum is right, its build-id is not.
    position = bytes(body).index(bytes.fromhex(table.build_id))
    body[position] ^= 1
    path.write_bytes(struct.pack("<8sII", b"tlstaxUT", 1, zlib.crc32(body)) + bytes(body))
    assert table_cache.kept_table(table.build_id) is None


def test_a_file_without_a_build_id_is_kept_by_its_contents(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building tables from instructions takes half a second for the libcrypto of MySQL 8.0."""
    library, source = tmp_path / "libnameless.so", tmp_path / "nameless.c"
    source.write_text("int one(void) { return 1; }\n")
    command = ["gcc", "-shared", "-fPIC", "-Wl,--build-id=none", "-o"]
    subprocess.run([*command, str(library), str(source)], check=True)
    ctypes.CDLL(str(library))
    maps = "\n".join(
        line for line in maps_of(os.getpid()).splitlines() if line.endswith(library.name)
    )
    first = lay_out(os.getpid(), maps, Layout())
    names = {key[2] for key in first.layout.files}
    assert str(library) in names  # by its path: it has no build-id
    assert all(one.buckets for one in first.layout.files.values() if one.name == library.name)

    def only_of_named(elf: Elf, *more: Any) -> Any:
        assert elf.build_id
        return build(elf, *more)

    monkeypatch.setattr(file_table, "build", only_of_named)
    assert lay_out(os.getpid(), maps, Layout()).words == first.words
    for kept in cache.iterdir():
        kept.unlink()
    with pytest.raises(TlstaxError):
        lay_out(os.getpid(), maps, Layout())


def names_of(enumeration: str) -> list[str]:
    """The names of an enumeration of the header, in order."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.search(rf"enum {enumeration} {{(.*?)}}", text, re.DOTALL)
    assert found
    return [name.strip() for name in found[1].split(",") if name.strip()]


@pytest.mark.parametrize(
    ("enumeration", "prefix", "mirror"),
    [
        ("unwind_row", "ROW_", Kind),
        ("unwind_rule_kind", "RULE_", RuleKind),
        ("unwind_saved", "SAVED_", Saved),
    ],
)
def test_the_header_agrees(enumeration: str, prefix: str, mirror: type[IntEnum]) -> None:
    assert names_of(enumeration) == [prefix + each.name for each in mirror]
    assert [each.value for each in mirror] == list(range(len(mirror)))


def test_the_header_agrees_on_counts_and_sizes() -> None:
    text = HEADER.read_text(encoding="utf-8")
    names = [name.removeprefix("WALK_").lower() for name in names_of("walk_count")]
    assert tuple(names[:-1]) == program_names.WALK_COUNTS
    assert f"UNWIND_RANGES = {RANGES_MOST}," in text
    assert f"UNWIND_CHUNK_WORDS = {walker.CHUNK_WORDS}," in text
    assert "WALKED_STACK = 1 << 29 " in text
    assert walker.WALKED_STACK == 1 << 29
    assert RULES_MOST == 4096
    assert tuple(program_names.LOSS_KINDS.values()) == tuple(kind.name for kind in WALK_LOSS_KINDS)

# SPDX-License-Identifier: GPL-2.0-only
"""A damaged or hostile file costs the recording its table, never the recorder its life."""

import random
import struct
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.unwinding import file_table
from tlstax.collectors.unwinding.expressions import cfa_rule, register_address
from tlstax.collectors.unwinding.file_table import (
    MAGIC,
    VERSION,
    FileTable,
    build,
    from_bytes,
    to_bytes,
)
from tlstax.collectors.unwinding.frame_entries import Common, read_entries
from tlstax.collectors.unwinding.frame_program import Packer, Programs
from tlstax.collectors.unwinding.process_tables import vdso_of
from tlstax.collectors.unwinding.row_format import Rule, RuleKind
from tlstax.collectors.unwinding.vdso import vdso_table

LOADER = Path("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
ROUNDS = 50


@pytest.fixture(scope="module")
def table() -> FileTable:
    with Elf(LOADER) as elf:
        found = build(elf)
    assert found is not None
    return found


def test_flipped_bytes_of_a_library(tmp_path: Path) -> None:
    with Elf(LOADER) as elf:
        content = bytearray(elf.data[:])
        frames = elf.section(".eh_frame")
    assert frames is not None
    choice = random.Random(16)
    path = tmp_path / "damaged"
    for _ in range(ROUNDS):
        damaged = content.copy()
        for _ in range(choice.choice((1, 8, 64))):
            damaged[choice.randrange(frames.offset, frames.offset + frames.size)] ^= 1 << (
                choice.randrange(8)
            )
        damaged[choice.randrange(4, 64)] ^= choice.choice((0, 0, 0, 255))
        path.write_bytes(damaged)
        try:
            with Elf(path) as elf:
                found = build(elf)
        except TlstaxError:
            continue
        if found is not None:
            assert from_bytes(to_bytes(found)).rows.tolist() == found.rows.tolist()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_as_entries(data: bytes, is_debug: bool) -> None:
    read_entries(data, 0x1000, is_debug)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=24))
def test_any_bytes_as_an_expression(data: bytes) -> None:
    rule = cfa_rule(data)
    if rule is not None:
        struct.pack("<BBBBiii", *rule)
    register_address(data)


def test_a_kept_table_is_read_back(table: FileTable) -> None:
    again = from_bytes(to_bytes(table))
    assert again.rows.tolist() == table.rows.tolist()
    assert again.firsts.tolist() == table.firsts.tolist()
    assert again._replace(rows=table.rows, firsts=table.firsts) == table


def test_a_kept_table_of_another_version_is_refused(table: FileTable) -> None:
    data = bytearray(to_bytes(table))
    data[8:12] = struct.pack("<I", VERSION + 1)
    with pytest.raises(ValueError, match="version"):
        from_bytes(bytes(data))


def test_a_damaged_kept_table_is_refused(table: FileTable) -> None:
    data = bytearray(to_bytes(table))
    data[len(data) // 2] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        from_bytes(bytes(data))
    for size in (0, 5, 20, len(data) - 1):
        with pytest.raises(ValueError, match=r"not an unwind table|checksum"):
            from_bytes(bytes(data[:size]))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_forged_checksum_does_not_help(table: FileTable, data: st.DataObject) -> None:
    """Whoever can write the cache must not make a program read outside of its table."""
    body = bytearray(to_bytes(table)[16:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1) | st.integers(0, 200))
        body[at] = data.draw(st.integers(0, 255))
    forged = struct.pack("<8sII", MAGIC, VERSION, zlib.crc32(body)) + bytes(body)
    try:
        found = from_bytes(forged)
    except ValueError:
        return
    assert int(found.firsts.max()) <= len(found.rows)
    for address in (found.base, found.base + found.buckets_count * 256 - 1):
        found.row(address)


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("77 08 80 00 3f 1a 3b 2a 33 24 22", Rule(RuleKind.PLT, 11, offset=8)),
        ("77 a0 01 06", Rule(RuleKind.INDIRECT, 7, offset=160)),
        ("76 78 06", Rule(RuleKind.INDIRECT, 6, offset=-8)),
        ("77 10 06 23 08", Rule(RuleKind.INDIRECT, 7, offset=16, add=8)),
        ("77 00 79 00 08 08 1e 22 06 23 08", Rule(RuleKind.SCALED, 9, scale=8, add=8)),
        ("77 00 79 00 33 24 22 06", Rule(RuleKind.SCALED, 9, scale=8)),
        ("77 08 80 00 3f 1a 3b 2a 33 24", None),
        ("96 00", None),
        ("", None),
    ],
)
def test_expressions_of_compilers_and_assembly(expression: str, rule: Rule | None) -> None:
    assert cfa_rule(bytes.fromhex(expression)) == rule


def test_a_file_with_too_many_rows_has_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of "advance by 1" would be 60 million rows: gigabytes on a database host."""
    with Elf(LOADER) as elf:
        monkeypatch.setattr(file_table, "ROWS_MOST", 1000)
        assert build(elf) is None
        monkeypatch.undo()
        assert build(elf) is not None
    common = Common(0x1B, False, True, 1, -8, 16, b"\x0c\x07\x08\x90\x01")
    rows = Programs(Packer().word).rows(0, common, b"\x41" * 1000)
    assert len(rows.deltas) == 1001
    with pytest.raises(IndexError, match="too many rows"):
        Programs(Packer().word).rows(0, common, b"\x41" * 100_000)


def test_without_room_for_temporary_files_the_vdso_has_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert vdso_table(vdso_of(PROC)) is None

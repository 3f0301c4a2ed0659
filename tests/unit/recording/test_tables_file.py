# SPDX-License-Identifier: GPL-2.0-only
"""The file of unwind tables beside a plan: what the recorder looks up in it, and how it grows."""

import ctypes
import errno
import os
import re
import stat
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tlstax import TlstaxError
from tlstax.collectors.recording.stream import tables_file
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.recorded_files import without_table
from tlstax.collectors.recording.stream.tables_file import (
    GrowingTables,
    process_tables,
    tables_bytes,
    write_tables,
)
from tlstax.collectors.unwinding.process_tables import Addition, FileKey, Layout

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Addition:
    """The tables of this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = process_tables(os.getpid())
    assert found is not None
    return found


def test_its_numbers_are_those_of_the_recorder() -> None:
    header = (ROOT / "collectors/recorder/tables.h").read_text()
    numbers = dict(re.findall(r"(TABLES_\w+) = (\d+)", header))
    assert int(numbers["TABLES_VERSION"]) == tables_file.VERSION
    assert int(numbers["TABLES_MOST"]) == tables_file.TABLES_MOST
    source = (ROOT / "collectors/recorder/walks.c").read_text()
    assert "ROOM_WORDS = 1 << 17," in source
    assert tables_file.ROOM_WORDS == 1 << 17


def listed(content: bytes) -> list[tuple[tuple[str, int, int, int], tuple[int, int, int]]]:
    """Of each table: by what it is found, and where it is."""
    (count,) = struct.unpack_from("<I", content, 16)
    found = []
    for number in range(count):
        base, index, buckets, length, major, minor, _, inode, identity = struct.unpack_from(
            "<QIIIIIIQ32s", content, 32 + 72 * number
        )
        key = (identity[:length].hex(), major, minor, inode)
        found.append((key, (base, index, buckets)))
    return found


def test_each_file_is_found_by_its_build_id(made: Addition) -> None:
    content = tables_bytes(made.layout, made.words)
    count, rules, words, _ = struct.unpack_from("<IIII", content, 16)
    assert len(content) == 32 + 72 * count + 16 * rules + 4 * words
    placed = [each for each in made.layout.files.values() if each.buckets]
    assert [(key[0], place) for key, place in listed(content)] == [
        (each.build_id, (each.base, each.index_word, each.buckets)) for each in placed
    ]
    assert any(each.name.startswith("libc.so") for each in placed)


def test_a_file_without_a_build_id_is_found_on_this_host(made: Addition) -> None:
    """By device and inode; a server that was built by hand has often none."""
    nameless = {key: each._replace(build_id="") for key, each in made.layout.files.items()}
    layout = Layout(files=nameless, words_count=made.layout.words_count, rules=made.layout.rules)
    libc = os.stat("/lib/x86_64-linux-gnu/libc.so.6")
    device = os.major(libc.st_dev), os.minor(libc.st_dev)
    keys = [key for key, _ in listed(tables_bytes(layout, made.words))]
    assert ("", *device, libc.st_ino) in keys


def test_it_belongs_to_its_owner_and_to_its_plan(made: Addition, tmp_path: Path) -> None:
    plan = tmp_path / "server.plan"
    path = write_tables(plan, made, overwrite=False)
    assert path == tmp_path / "server.plan.unwind"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(TlstaxError, match="exists"):
        write_tables(plan, made, overwrite=False)
    assert write_tables(plan, made, overwrite=True) == path
    # Tables of another plan would be as good, but those of a wish for none would not.
    assert write_tables(plan, None, overwrite=True) is None
    assert not path.exists()


def test_a_full_disk_leaves_no_part(
    made: Addition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tables_file, "tables_bytes", full)
    with pytest.raises(TlstaxError, match="No space"):
        write_tables(tmp_path / "server.plan", made, overwrite=False)
    assert list(tmp_path.glob("server.plan*")) == []


def mapping(inode: int, has_table: int) -> tuple[object, bytes]:
    entry = definition().layout("mapping")(inode=inode, has_table=has_table, start=inode << 20)
    assert ctypes.sizeof(entry)
    return entry, b"/x"


def _with_libc(process: "subprocess.Popen[bytes]") -> tuple[Addition, FileKey]:
    """Its tables once the C library is mapped, and the key of that."""
    while process.poll() is None:
        if found := process_tables(process.pid):
            for key, placed in found.layout.files.items():
                if placed.name.startswith("libc.so"):
                    return found, key
    raise AssertionError("it ended")


def test_it_grows_by_what_is_mapped_later_and_only_then(
    made: Addition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            first, libc = _with_libc(process)
            files = {key: each for key, each in first.layout.files.items() if key != libc}
            layout = first.layout
            tables = GrowingTables(
                process.pid,
                Addition(
                    Layout(layout.ranges, files, layout.words_count, layout.rules), 0, first.words
                ),
            )
            known = [mapping(key[1], 1) for key in files if key[1]]
            assert not tables.grow(known)
            assert tables.grow([*known, mapping(libc[1], 0)])
            assert tables.content().startswith(tables_bytes(layout, first.words)[:12])
            assert len(tables.content()) > len(tables_bytes(layout, first.words))
            assert not tables.grow([*known, mapping(libc[1], 0)]), "it was tried"
        finally:
            process.kill()


def test_a_process_that_is_gone_adds_nothing(made: Addition) -> None:
    tables = GrowingTables(2**22 + 1, made)
    assert not tables.grow([mapping(1, 0)])


def test_the_kernel_s_copies_of_instructions_are_no_file_without_a_table() -> None:
    # A sample may meet an instruction that is single-stepped there: no library lacks a table.
    library = SimpleNamespace(has_table=0, start=0x1000)
    copies = SimpleNamespace(has_table=0, start=0x7FFF00000000)
    mappings = [(library, b"/lib/libx.so"), (copies, b"[uprobes]")]
    assert without_table(mappings) == ["libx.so"]

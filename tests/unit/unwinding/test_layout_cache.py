# SPDX-License-Identifier: GPL-2.0-only
"""Kept unwind tables of a process: equal to what is made anew, or not used."""

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tlstax import TlstaxError
from tlstax.collectors.process.mappings import PROC, MappedObject
from tlstax.collectors.process.target import Target
from tlstax.collectors.unwinding import layout_cache, process_tables
from tlstax.collectors.unwinding.layout_cache import kept_layout, name_of
from tlstax.collectors.unwinding.process_tables import Layout, lay_out, maps_of, vdso_of

PROCESS = Path("/proc/self")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tlstax" / "unwind"


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(what: str, function: Callable[[], Any]) -> NoReturn:
        raise AssertionError(f"{what} in a child")

    return lambda: monkeypatch.setattr(process_tables, "run_in_child", refuse)


def test_a_kept_layout_is_the_layout_of_another_process(
    tls_process: Target, no_child: Callable[[], None], cache: Path
) -> None:
    maps = maps_of(tls_process.pid)
    first = lay_out(tls_process.pid, maps, Layout())
    (path,) = cache.glob("*.layout")
    assert path.stat().st_mode & 0o777 == 0o600
    no_child()
    again = lay_out(tls_process.pid, maps, Layout())
    assert again == first
    assert len(again.layout.files) > 3
    # With other files behind the same names, a table would be found by the wrong device and inode.
    moved = [replace(each, inode=each.inode + 1, device="fe:0") for each in first.layout.objects]
    assert name_of(moved, vdso_of(PROC), PROCESS) == path.stem


def test_a_process_with_another_file_has_another_layout(tls_process: Target) -> None:
    maps = maps_of(tls_process.pid)
    lay_out(tls_process.pid, maps, Layout())
    without = "\n".join(line for line in maps.split("\n") if "libcrypto" not in line)
    assert without != maps
    less = lay_out(tls_process.pid, without, Layout())
    assert not any("libcrypto" in placed.name for placed in less.layout.files.values())
    assert len(less.words) < len(lay_out(tls_process.pid, maps, Layout()).words)


def test_what_a_layout_depends_on_is_in_its_name(
    tls_process: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, vdso = list(tls_process.objects), vdso_of(PROC)
    other: MappedObject = replace(objects[0], build_id="00" * 20)
    assert vdso
    names = [name_of(*each, PROCESS) for each in ((objects, vdso), (objects[::-1], vdso))]
    names += [name_of([other, *objects[1:]], vdso, PROCESS), name_of(objects, b"", PROCESS)]
    names.append(name_of(objects, vdso, Path("/elsewhere/17")))
    with monkeypatch.context() as patched:
        patched.setattr(layout_cache, "identity", lambda path: "another debug file")
        names.append(name_of(objects, vdso, PROCESS))
    monkeypatch.setattr(layout_cache, "code", lambda: "another version")
    names.append(name_of(objects, vdso, PROCESS))
    assert len(set(names)) == len(names)
    nameless = replace(objects[0], build_id="")
    assert not name_of([nameless, *objects[1:]], vdso, PROCESS)


def test_a_table_of_a_file_that_another_host_sent_is_not_used_here(
    tls_process: Target, cache: Path
) -> None:
    mapped = next(each for each in tls_process.objects if "libssl" in each.name)
    words = process_tables._Words(Layout(), process_tables.WORDS_MOST)
    process_tables._place(mapped, words, cache / "proc/17")
    (sent,) = cache.glob(f"{mapped.build_id}*.table")
    process_tables._place(mapped, words, PROCESS)
    assert len(list(cache.glob(f"{mapped.build_id}*.table"))) == 2
    assert "elsewhere" in sent.name


def test_what_could_not_be_read_is_tried_again(
    tls_process: Target, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(mapped: MappedObject) -> int:
        raise TlstaxError("it cannot be opened", "no reason", "nothing")

    maps = maps_of(tls_process.pid)
    with monkeypatch.context() as patched:
        patched.setattr(process_tables, "open_mapped", refuse)
        lay_out(tls_process.pid, maps, Layout())
    assert not list(cache.glob("*.layout"))
    lay_out(tls_process.pid, maps, Layout())
    assert list(cache.glob("*.layout"))


def damaged_count(body: bytes) -> bytes:
    return struct.pack("<II", 7, 1 << 30) + body[8:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-4],
        lambda body: body + b"1",
        lambda body: body[:4],
        lambda body: b"",
        damaged_count,
        lambda body: body.replace(b"[[", b"[7,[", 1),
        lambda body: body.replace(b"[[", b"{[", 1),
        lambda body: body[:-1024],
    ],
)
def test_a_damaged_layout_is_not_used(
    tls_process: Target, cache: Path, damage: Callable[[bytes], bytes]
) -> None:
    maps = maps_of(tls_process.pid)
    made = lay_out(tls_process.pid, maps, Layout())
    (path,) = cache.glob("*.layout")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x7f")
    assert kept_layout(path.stem) is None
    body = damage(content[16:])
    path.write_bytes(struct.pack("<8sII", b"tlstaxUL", 1, zlib.crc32(body)) + body)
    assert kept_layout(path.stem) is None
    assert lay_out(tls_process.pid, maps, Layout()) == made
    assert kept_layout(path.stem) is not None


def test_the_oldest_go(tls_process: Target, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_cache, "LAYOUTS_MOST", 2)
    lay_out(tls_process.pid, maps_of(tls_process.pid), Layout())
    (first,) = cache.glob("*.layout")
    kept = kept_layout(first.stem)
    assert kept is not None
    os.utime(first, (0, 0))
    for name in ("a", "b"):
        layout_cache.keep_layout(name, kept)
    assert {path.stem for path in cache.glob("*.layout")} == {"a", "b"}

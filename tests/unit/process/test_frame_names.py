# SPDX-License-Identifier: GPL-2.0-only
"""Names of addresses that several processes have in common are looked up once, and are the same."""

import os
import re
import signal
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process import frame_names, symbols
from tlstax.collectors.process.frame_names import FrameNames
from tlstax.collectors.process.mappings import read_special_maps
from tlstax.collectors.process.symbols import OpenObject, Place, Symbolizer
from tlstax.collectors.process.target import Target, open_target

assert ssl.OPENSSL_VERSION_INFO  # libcrypto is mapped here, too


def address_in(target: Target, path: Path, function: str) -> int:
    """The address of a function of a library in a process."""
    with Elf(path) as elf:
        (found,) = elf.find(re.compile(function))
        offset = elf.to_offset(found.address)
    mapped = next(each for each in target.objects if each.path == str(path.resolve()))
    address = mapped.address_of(offset)
    assert address is not None
    return address


@pytest.fixture
def here() -> Callable[[str, Any], Any]:
    """Runs work in this process instead of a child."""
    return lambda _what, function: function()


def test_two_processes_in_one_place(
    tls_process: Target,
    libraries: dict[str, Path],
    here: Callable[[str, Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[int] = []
    place = OpenObject.place

    def counting(opened: OpenObject, offset: int) -> Place:
        looked_up.append(offset)
        return place(opened, offset)

    monkeypatch.setattr(OpenObject, "place", counting)
    monkeypatch.setattr(frame_names, "run_in_child", here)
    monkeypatch.setattr("os.nice", lambda _: 0)
    targets = [tls_process, open_target(os.getpid())]
    readers = [Symbolizer(target) for target in targets]
    names = FrameNames()
    keys = {
        names.add(reader, False, address_in(target, libraries["libcrypto"], "EVP_DigestInit_ex"))
        for target, reader in zip(targets, readers, strict=True)
    }
    (key,) = keys
    assert [names.needs(reader) for reader in readers] == [True, False]
    readers[1].close()
    kernel = names.add(readers[0], True, 1 << 63)
    found = names.look_up()
    readers[0].close()
    assert found[key].symbol == "EVP_DigestInit_ex"
    assert found[kernel].object == "kernel"
    assert len(looked_up) == 1
    assert not names.look_up(), "they are forgotten"


def test_names_are_looked_up_last_of_all(
    tls_process: Target, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: the server, and what still records, come first."""

    def who(_opened: OpenObject, _offset: int) -> Place:
        seen = f"{os.getpid()} {os.getpriority(os.PRIO_PROCESS, 0)}"
        return Place("", "", 0, seen, 0, "", "")

    before = os.getpriority(os.PRIO_PROCESS, 0)
    reader, names = Symbolizer(tls_process), FrameNames()
    address = address_in(tls_process, libraries["libcrypto"], "EVP_DigestInit_ex")
    key = names.add(reader, False, address)
    monkeypatch.setattr(OpenObject, "place", who)
    process, nice = map(int, names.look_up()[key].symbol.split())
    reader.close()
    assert process != os.getpid()
    assert nice == frame_names.LAST_OF_ALL == 19
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_what_is_of_one_process_is_kept_apart(tls_process: Target) -> None:
    """Generated code and [vdso] are at other addresses in each; without a file, none stays open."""
    targets = [tls_process, open_target(os.getpid())]
    readers = [Symbolizer(target) for target in targets]
    vdso = [
        start
        for target in targets
        for start, _, name in read_special_maps(target.pid)
        if name == "[vdso]"
    ]
    os.kill(tls_process.pid, signal.SIGKILL)
    names = FrameNames()
    keys = [
        names.add(reader, False, address + 4, is_over=True)
        for reader, address in zip(readers, vdso, strict=True)
    ]
    nothing = names.add(readers[0], False, 4096, is_over=True)
    assert not any(names.needs(reader) for reader in readers)
    for reader in readers:
        reader.close()
    found = names.look_up()
    assert [found[key].symbol for key in keys] == ["[vdso]", "[vdso]"]
    assert len(set(keys)) == 2
    assert found[nothing].symbol == symbols.UNNAMED

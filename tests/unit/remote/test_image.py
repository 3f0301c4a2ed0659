# SPDX-License-Identifier: GPL-2.0-only
"""What another host sends is not believed."""

import ctypes
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.file_images import kept_image
from tlstax.collectors.process.mappings import read_maps
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.destination import Destination
from tlstax.collectors.remote.image import Image

NUMBERS = definition()
BUILD_ID = bytes.fromhex("ab" * 20)


class Host:
    """Answers as told."""

    destination = Destination("db1")

    def __init__(self, *answers: list[Frame]) -> None:
        self._answers = list(answers)

    def ask(self, _request: str) -> Iterator[Frame]:
        """The next answer."""
        return iter(self._answers.pop(0))


def fact(name: str, text: bytes = b"x", kind: str = "FACT") -> Frame:
    head = NUMBERS.layout("fact")(name_bytes=len(name.encode()))
    return Frame(NUMBERS.number(kind), bytes(head) + name.encode() + text)


def mapping(
    path: bytes = b"/usr/lib/libssl.so.3",
    build_id: bytes = BUILD_ID,
    inode: int = 7,
    start: int = 0x1000,
) -> Frame:
    layout = NUMBERS.layout("mapping")
    whole = (ctypes.c_uint8 * 32).from_buffer_copy(build_id.ljust(32, b"\0"))
    entry = layout(
        start=start, end=start + 0x1000, inode=inode, path_bytes=len(path),
        build_id_bytes=len(build_id), build_id=whole,
    )  # fmt: skip
    return Frame(NUMBERS.number("MAPPING"), bytes(entry) + path)


def file(size: int) -> Frame:
    return Frame(NUMBERS.number("FILE"), bytes(NUMBERS.layout("file")(size_bytes=size)))


def part(offset: int, content: bytes) -> Frame:
    return Frame(NUMBERS.number("PART"), bytes(NUMBERS.layout("part")(offset=offset)) + content)


def image(directory: Path, *answers: list[Frame]) -> Image:
    return Image(directory / "image", cast(Connection, Host(*answers)))


def add(to: Image) -> None:
    to.add_process(17, (), lambda _text: None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_texts_of_several_frames_are_one(tmp_path: Path) -> None:
    made = image(tmp_path, [fact("proc/17/maps", b"one\n"), fact("proc/17/maps", b"two\n")])
    add(made)
    assert (made.proc / "17/maps").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    "name",
    [
        "../x", "VICTIM", "proc/17/exe/victim", "proc/17/exe", "proc/17/environ", "x",
        "sys/fs/cgroup/../../x", "sys/fs/cgroup/a/../../../../x", "sys/fs/cgroup/..",
        "boot/config-../x",
        "proc/17/map_files/1000-2000", "proc/17/../18/stat", "files/0/x", "proc/17/stat\n", "",
    ],
)  # fmt: skip
def test_no_text_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"  # never a file of the host: this test must fail without harm
    victim.touch()
    link = fact("proc/17/exe", bytes(tmp_path), "LINK")
    made = image(tmp_path, [link, fact(name.replace("VICTIM", str(victim)))])
    with pytest.raises(TlstaxError, match="sent what no recorder sends"):
        add(made)
    assert victim.read_bytes() == b""
    assert {path.name for path in tmp_path.iterdir()} == {"image", "victim"}


@pytest.mark.parametrize("character", ["\n", "\r", "\x01", "\x7f"])
def test_no_character_hides_where_a_name_leads(tmp_path: Path, character: str) -> None:
    """A dot matches no line break: what follows one was not looked at."""
    victim = tmp_path / "victim"
    victim.touch()
    name = f"sys/fs/cgroup/{character}/../../../../proc/17/exe"
    made = image(tmp_path, [fact("proc/17/exe", bytes(victim), "LINK"), fact(name, b"EVIL")])
    with pytest.raises(TlstaxError, match="sent what no recorder sends"):
        add(made)
    assert victim.read_bytes() == b""


def test_a_text_is_not_written_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were its name let through."""
    victim = tmp_path / "victim"
    victim.touch()
    monkeypatch.setattr("tlstax.collectors.remote.image._FACT_NAME", re.compile(".*"))
    made = image(tmp_path, [fact("proc/17/exe", bytes(victim), "LINK"), fact("proc/17/exe")])
    with pytest.raises(TlstaxError, match="sent what no recorder sends"):
        add(made)
    assert victim.read_bytes() == b""


@pytest.mark.parametrize("path", [b"/usr/lib/libssl.so.3", b"/" + b"x" * 300])
def test_mappings_that_no_process_has(tmp_path: Path, path: bytes) -> None:
    """Two files at one address, or a name that is too long for a file."""
    one, other = mapping(path, b""), mapping(path, b"", inode=8)
    with pytest.raises(TlstaxError, match="sent what no recorder sends"):
        add(image(tmp_path, [one, other], [file(0)], [file(0)]))


def test_no_room_is_not_the_other_hosts_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for answers in ([fact("proc/17/maps")],), ([mapping(build_id=b"")], [file(9)]):
        made = image(tmp_path / str(len(answers)), *answers)
        with monkeypatch.context() as patched:
            patched.setattr("os.ftruncate" if len(answers) > 1 else "os.open", full)
            with pytest.raises(TlstaxError, match="Free some space") as refused:
                add(made)
        assert refused.value.exit_code == ExitCode.IO


@pytest.mark.parametrize("name", ["proc/17/stat", "proc/self/exe", "sys/fs/cgroup/a", "machine"])
def test_no_other_links(tmp_path: Path, name: str) -> None:
    with pytest.raises(TlstaxError, match="sent what no recorder sends"):
        add(image(tmp_path, [fact(name, b"/etc", "LINK")]))


def test_answers_end(tmp_path: Path) -> None:
    endless = [fact("proc/kallsyms", b"x" * 65000)] * 1100
    with pytest.raises(TlstaxError, match="it does not end"):
        add(image(tmp_path, endless))


@pytest.mark.parametrize(
    "answer",
    [
        [file(100), part(90, b"x" * 20)],
        [file(100), part((1 << 64) - 1, b"x")],
        [part(0, b"x")],
        [file(1 << 40)],
        [file(100), fact("machine")],
        [file(100), part(0, b"x")],
        [],
    ],
    ids=["beyond", "far beyond", "no size", "too large", "another frame", "no ELF file", "nothing"],
)
def test_files_that_are_not_what_was_asked_for(
    tmp_path: Path, answer: list[Frame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process finds them in the cache, not even for a moment."""
    monkeypatch.setattr(os, "link", lambda *_: pytest.fail("it is an image before it is read"))
    with pytest.raises(TlstaxError, match="sent what no recorder sends"):
        add(image(tmp_path, [mapping()], answer))
    assert kept_image(BUILD_ID.hex()) is None
    assert not any(path.is_file() for path in (tmp_path / "cache/tlstax/images").rglob("*"))


@pytest.mark.parametrize("path", [b"/..", b"", b"/x/", b"/a\0b"])
def test_names_of_files_lead_nowhere(tmp_path: Path, path: bytes) -> None:
    made = image(tmp_path, [mapping(path, b"")], [])
    add(made)
    (link,) = (made.proc / "17/map_files").iterdir()
    assert (tmp_path / "image") in link.readlink().parents


def test_a_file_of_this_host_is_never_taken_for_one_of_the_other(tmp_path: Path) -> None:
    """Hosts of one disk image have the same paths, devices and inodes, and other versions."""
    here = Path("/usr/bin/env").resolve().stat()
    device = f"{os.major(here.st_dev):02x}:{os.minor(here.st_dev):02x}"
    path = Path("/usr/bin/env").resolve()
    maps = f"1000-2000 r-xp 00000000 {device} {here.st_ino} {path}\n"
    assert read_maps(17, maps)[0].open_path, "of a process of this host it would be"
    (found,) = read_maps(17, maps, proc=tmp_path / "proc")
    assert (found.open_path, found.build_id) == ("", "")


def broken(_request: str) -> Any:
    """A line that is cut."""
    raise TlstaxError("cut", "cut", "cut")


def test_a_line_that_is_cut_leaves_no_image(tmp_path: Path) -> None:
    class Cut(Host):
        def ask(self, request: str) -> Iterator[Frame]:
            yield from super().ask(request)
            if request.startswith("file"):
                broken(request)

    made = Image(tmp_path / "image", cast(Connection, Cut([mapping()], [file(100)])))
    with pytest.raises(TlstaxError, match="cut"):
        add(made)
    assert not any(path.is_file() for path in (tmp_path / "cache/tlstax/images").rglob("*"))

# SPDX-License-Identifier: GPL-2.0-only
"""Processes that want the files of the same new build: one fetches them, the others wait for it."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tlstax import cache_directory
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process import file_images
from tlstax.collectors.process.file_images import kept_image
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.remote import image
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.image import Image
from tlstax.tests.unit.remote.test_image import Host, add, file, mapping, part

PATIENCE_S = 60
ONLY_ONE_S = 0.5
# Another tlstax that fetches these builds, until its input ends.
HOLDER = """
import sys
from contextlib import ExitStack
from tlstax.collectors.process.file_images import fetching_turn
# Builds that share a lock: it is held once.
firsts = {each[:2]: each for each in sys.argv[1:]}.values()
with ExitStack() as held:
    print(all([held.enter_context(fetching_turn(each, 0)) for each in firsts]), flush=True)
    sys.stdin.read()
"""
Spawn = Callable[..., "subprocess.Popen[Any]"]


class Noted(Host):
    """A host that notes which answers were asked for."""

    def __init__(self, *files: Path) -> None:
        """Of a process that maps these files."""
        pairs = zip(files, map(build_id, files), strict=True)
        mappings = [
            mapping(bytes(path), bytes.fromhex(found), inode=number, start=number << 16)
            for number, (path, found) in enumerate(pairs, 7)
        ]
        contents = ([file(each.stat().st_size), part(0, each.read_bytes())] for each in files)
        super().__init__(mappings, *contents)
        self.asked: list[str] = []

    def ask(self, request: str) -> Iterator[Frame]:
        """The next answer."""
        self.asked.append(request.split()[0])
        yield from super().ask(request)


class Slow(Noted):
    """One that sends files when the test says so."""

    def __init__(self, *files: Path) -> None:
        super().__init__(*files)
        self.is_asked, self.go = threading.Event(), threading.Event()

    def ask(self, request: str) -> Iterator[Frame]:
        """The next answer, maybe late."""
        if request.startswith("file"):
            self.is_asked.set()
            assert self.go.wait(PATIENCE_S)
        yield from super().ask(request)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def build_id(path: Path) -> str:
    with Elf(path) as elf:
        return elf.build_id


def image_of(folder: Path, host: Host) -> Image:
    return Image(folder, cast(Connection, host))


def hold(spawn: Spawn, *builds: str) -> "subprocess.Popen[bytes]":
    """Another process that has the turn of these builds."""
    command = [sys.executable, "-c", HOLDER, *builds]
    holder: subprocess.Popen[bytes] = spawn(command, stdin=-1, stdout=-1)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    return holder


def test_of_two_that_want_a_build_one_fetches_it(
    libraries: dict[str, Path], tmp_path: Path
) -> None:
    """Each of the first 20 hosts of a round sent 40 MB of a server that was new here."""
    first, second = Slow(libraries["libssl"]), Noted(libraries["libssl"])
    with ThreadPoolExecutor() as pool:
        try:
            one = pool.submit(add, image_of(tmp_path / "first", first))
            assert first.is_asked.wait(PATIENCE_S)
            other = pool.submit(add, image_of(tmp_path / "second", second))
            time.sleep(ONLY_ONE_S)
        finally:
            first.go.set()
        one.result(PATIENCE_S)
        other.result(PATIENCE_S)
    assert (first.asked, second.asked) == (["facts", "file"], ["facts"])
    (link,) = (tmp_path / "second/proc/17/map_files").iterdir()
    assert link.resolve() == kept_image(build_id(libraries["libssl"]))
    (lock,) = (cache_directory() / file_images.TURNS_FOLDER).iterdir()
    assert lock.stat().st_mode & 0o777 == 0o600
    assert lock.parent.stat().st_mode & 0o777 == 0o700


def test_one_that_dies_gives_way_to_the_next(
    libraries: dict[str, Path], tmp_path: Path, spawn: Spawn
) -> None:
    holder = hold(spawn, build_id(libraries["libssl"]))
    host = Noted(libraries["libssl"])
    with ThreadPoolExecutor() as pool:
        try:
            made = pool.submit(add, image_of(tmp_path / "image", host))
            time.sleep(ONLY_ONE_S)
            assert "file" not in host.asked
        finally:
            holder.kill()
        made.result(PATIENCE_S)
    assert host.asked == ["facts", "file"]


def test_only_time_spent_waiting_counts(
    libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files that take a minute each to send: all hosts fetched at once after the first one."""
    now_s, waits_s = [0.0], list[float]()

    class Late(Noted):
        def ask(self, request: str) -> Iterator[Frame]:
            now_s[0] += 60
            return super().ask(request)

    @contextmanager
    def waited(_build_id: str, wait_s: float) -> Iterator[bool]:
        waits_s.append(wait_s)
        now_s[0] += 7
        yield True

    monkeypatch.setattr(image, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(image, "fetching_turn", waited)
    host = Late(libraries["libssl"], libraries["libcrypto"])
    add(image_of(tmp_path / "image", host))
    assert waits_s == [image.WAIT_S, image.WAIT_S - 7]


def test_nobody_waits_for_ever(
    libraries: dict[str, Path], tmp_path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose line is slow delays the others once, and not for each file."""
    waits: list[float] = []
    turn = file_images.fetching_turn

    def noted(build: str, wait_s: float) -> Any:
        waits.append(wait_s)
        return turn(build, wait_s)

    monkeypatch.setattr(image, "WAIT_S", ONLY_ONE_S)
    monkeypatch.setattr(image, "fetching_turn", noted)
    files = [libraries["libssl"], libraries["libcrypto"]]
    hold(spawn, *map(build_id, files))
    host = Noted(*files)
    begun_s = time.monotonic()
    add(image_of(tmp_path / "image", host))
    assert time.monotonic() - begun_s >= ONLY_ONE_S
    assert host.asked == ["facts", "file", "file"]
    assert 0 < waits[0] <= ONLY_ONE_S
    assert waits[1:] == [0]


def test_where_no_lock_can_be_had_each_one_fetches(
    libraries: dict[str, Path], tmp_path: Path
) -> None:
    """The folder of the locks is a file here, which also stops root."""
    cache_directory().mkdir(parents=True)
    (cache_directory() / file_images.TURNS_FOLDER).touch()
    host = Noted(libraries["libssl"])
    add(image_of(tmp_path / "image", host))
    assert host.asked == ["facts", "file"]

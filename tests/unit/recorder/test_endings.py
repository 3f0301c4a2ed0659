# SPDX-License-Identifier: GPL-2.0-only
"""How the recorder ends the recordings of several targets, with a reader that is slow or gone."""

import ctypes
import io
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame, Reading, read_frames, record, records

ROOT: Final = Path(__file__).resolve().parents[3]
PARTS: Final = ("session", "ending", "output", "failure", "kernel_names", "mappings", "links")
QUEUE_BYTES, RECORD_BYTES, SPIN_NS, MAPPINGS = 256 << 10, 4096, 10_000_000, 300
KERNEL: Final = 0xFFFFFFFF81000000
ADDRESSES: Final = {KERNEL + 16 * number for number in range(1, 2001)}
OK, FAILED, TARGET, IO = 0, 1, 4, 6
SHORT_S, MERGED = 0.3, 3
MS: Final = 1_000_000


class Fake(ctypes.Structure):
    """`struct fake` of endings.c."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("steps", "refusals", "records", "tries")),
        ("asked_ns", ctypes.c_uint64),
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("endings")
    code = (ROOT / "collectors/recorder/main.c").read_text()
    patience = {"(20 * NS_PER_S)": f"({SHORT_S * 1e9:.0f}ULL)", "(2 * NS_PER_S)": f"({50 * MS}ULL)"}
    for found, shorter in patience.items():
        assert code.count(found) == 1
        code = code.replace(found, shorter)
    (folder / "main.c").write_text(code)
    subprocess.run(
        [
            *("clang", "-std=gnu11", "-D_GNU_SOURCE", '-DTLSTAX_VERSION="x"', "-O1", "-shared"),
            *("-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wl,--no-undefined"),
            *("-Wl,--wrap=lines_open", "-Wl,--wrap=close", "-o", str(folder / "made.so")),
            *("-I", str(folder), "-I", str(ROOT / "collectors/recorder")),
            *("-I", str(ROOT / "probes/bpf"), str(ROOT / "tests/recorder/endings.c")),
            *(str(ROOT / f"collectors/recorder/{part}.c") for part in (*PARTS, "proc")),
            "-lz",
        ],
        check=True,
    )
    return folder / "made.so"


class Running:
    """A recorder of some targets, and who reads its stream."""

    def __init__(self, library: Path, folder: Path, targets: int, links: int = 0) -> None:
        maps, names = folder / "maps", folder / "kallsyms"
        maps.write_text("".join(mapping(number) for number in range(MAPPINGS)))
        names.write_text(f"{KERNEL:016x} T first\n")
        self.c: Any = ctypes.CDLL(str(library))
        self.c.why.restype = ctypes.c_char_p
        self.c.cpu_of.restype = ctypes.c_uint64
        ctypes.c_int.in_dll(self.c, "links_each").value = links
        self.fakes = (Fake * 3).in_dll(self.c, "fakes")
        self.output, self.input = os.pipe()
        self._paths = bytes(maps), bytes(names)  # it keeps none of them
        begun = self.c.begin(self.input, targets, ctypes.c_uint64(QUEUE_BYTES), *self._paths)
        assert begun == 0, self.c.why()
        self._reader: threading.Thread | None = None
        self._read = b""

    def read(self, pause_s: float = 0.0) -> None:
        """Let somebody read from now on, with a pause after each piece."""

        def go_on() -> None:
            while found := os.read(self.output, 1 << 14):
                self._read += found
                time.sleep(pause_s)

        self._reader = threading.Thread(target=go_on)
        self._reader.start()

    def record(self, seconds: float) -> None:
        """Its loop."""
        self.c.go_on_for(ctypes.c_uint64(int(seconds * 1e9)), self.input)

    def end(self, *, is_early: bool = False) -> int:
        """Its end, early because it failed, or not; the exit code."""
        self.c.end(is_early)
        return int(self.c.exit_code())

    def close(self) -> None:
        """The stream ends."""
        if self.input >= 0:
            if self._reader:
                self.c.left_unread()
            os.close(self.input)
            self.input = -1
        if self._reader:
            self._reader.join()

    def frames(self, target: int) -> list[Frame]:
        """Of a target; the stream is whole."""
        self.close()
        reading = Reading(target=target)
        found = list(read_frames(io.BytesIO(self._read), reading))
        assert reading.why_ended == ""
        return found

    def of(self, target: int, kind: str) -> list[bytes]:
        """The contents of a target's frames of a kind."""
        number = definition().number(kind)
        return [frame.content for frame in self.frames(target) if frame.type == number]

    def assert_whole(self, target: int, windows_records: int) -> Any:
        """All that belongs to the end of a target has arrived; its end, which came last."""
        assert self.frames(target)[-1].type == definition().number("END")
        assert len(b"".join(self.of(target, "SAMPLE"))) == windows_records * RECORD_BYTES
        assert len(self.of(target, "MAPPING")) == MAPPINGS
        names = [
            row for frame in self.of(target, "KERNEL_NAME") for row in records("kernel_name", frame)
        ]
        assert {int(name.address) for name in names} == ADDRESSES
        assert {name.name for name in names} == {b"first"}
        (end,) = self.of(target, "END")
        return record("end", end)


def mapping(number: int) -> str:
    """A line of maps, with a path of some length."""
    start = 0x7F0000000000 + number * 0x10000
    return f"{start:x}-{start + 0x1000:x} r-xp 00000000 08:01 {number + 1} /{'x' * 300}{number}\n"


@pytest.fixture
def running(built: Path, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Make one: of a copy of the recorder, which has done nothing yet."""
    made: list[Running] = []

    def make(targets: int, links: int = 0) -> Running:
        made.append(Running(Path(shutil.copy(built, tmp_path)), tmp_path, targets, links))
        return made[-1]

    yield make
    for one in made:
        one.close()
        os.close(one.output)


def test_what_comes_last_waits_for_room(running: Callable[..., Running]) -> None:
    """The last window fills the queue, and mappings and names are more than it holds."""
    made = running(1)
    made.fakes[0].records = 55
    made.read(0.001)
    assert made.end() == OK, made.c.why()
    end = made.assert_whole(0, 55)
    assert (end.exit_code, end.merged_count) == (OK, MERGED)
    assert made.fakes[0].tries == 1


def test_one_that_ends_is_whole_while_others_go_on(running: Callable[..., Running]) -> None:
    made = running(2)
    made.fakes[0].records, made.fakes[0].steps = 40, 2
    made.read(0.001)
    made.record(3 * SHORT_S)
    assert [made.c.is_over(target) for target in (0, 1)] == [True, False]
    assert made.end() == OK, made.c.why()
    assert made.assert_whole(0, 40).exit_code == TARGET
    assert made.assert_whole(1, 0).exit_code == OK


def test_one_that_ends_leaves_half_of_the_queue_to_the_others(
    running: Callable[..., Running],
) -> None:
    """With a reader that takes nothing its end waits, and nothing of it is lost."""
    made = running(2)
    made.fakes[0].records, made.fakes[0].steps = 40, 2
    made.record(SHORT_S / 4)  # less than its patience
    assert not made.c.is_over(0)
    made.read()
    made.record(SHORT_S)
    assert made.c.is_over(0)
    assert made.end() == OK, made.c.why()
    assert made.assert_whole(0, 40).exit_code == TARGET


def test_a_last_window_that_is_tried_again_is_no_part_of_a_longer_one(
    running: Callable[..., Running],
) -> None:
    made = running(2)
    for fake in made.fakes:
        fake.records, fake.refusals = 5, 4
    made.fakes[0].steps = 2
    made.read()
    made.record(SHORT_S)
    assert made.end() == OK, made.c.why()
    for target in (0, 1):
        assert made.fakes[target].tries == 5
        assert made.assert_whole(target, 5).merged_count == MERGED


@pytest.mark.parametrize("is_early", [False, True])
def test_what_found_no_room_is_lost_in_words(
    running: Callable[..., Running], is_early: bool
) -> None:
    """Nobody reads until the recorder has given up; then all that is there is read."""
    made = running(2)
    for fake in made.fakes:
        fake.records = 50
    assert made.end(is_early=is_early) == (FAILED if is_early else IO)
    if not is_early:
        assert b"found no room in the stream and is lost" in made.c.why()
    made.read()
    ends = [record("end", made.of(target, "END")[0]) for target in (0, 1)]
    assert [int(end.exit_code) for end in ends] == [FAILED if is_early else IO] * 2
    assert len(made.of(1, "SAMPLE")) == 0


def test_a_target_that_ended_hides_no_loss(running: Callable[..., Running]) -> None:
    """Its exit status says that the stream is complete."""
    made = running(1)
    made.fakes[0].records, made.fakes[0].steps = 50, 2
    made.record(SHORT_S)
    assert made.end() == IO
    made.read()
    (end,) = made.of(0, "END")
    assert record("end", end).exit_code == IO


def test_a_cut_now_is_at_one_time_for_all(running: Callable[..., Running]) -> None:
    made = running(3)
    made.read()
    ctypes.c_uint64.in_dll(made.c, "cut_asked_ns").value = 0
    before_ns = time.monotonic_ns()
    made.record(SHORT_S / 10)
    asked = {int(fake.asked_ns) for fake in made.fakes}
    assert len(asked) == 1
    assert before_ns <= asked.pop() <= time.monotonic_ns()


def test_closing_is_charged_to_whose_links_are_closed(running: Callable[..., Running]) -> None:
    """Other threads close them; what is for none of the targets is the first one's."""
    links = 4
    made = running(3, links)
    made.read()
    before_ns = [int(made.c.cpu_of(target)) for target in range(3)]
    made.fakes[1].steps = 2
    made.record(SHORT_S)
    spent = [int(made.c.cpu_of(target)) - before_ns[target] for target in range(3)]
    assert spent[1] >= links * SPIN_NS
    assert max(spent[0], spent[2]) < links * SPIN_NS

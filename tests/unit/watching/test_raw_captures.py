# SPDX-License-Identifier: GPL-2.0-only
"""Raw windows of a watch: a capture for each source, named, within a bound of bytes."""

import errno
import io
import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.process.symbols import KernelSymbols
from tlstax.collectors.recording.part_end import PartEnd
from tlstax.collectors.recording.stack_store import KERNEL, Unnamed
from tlstax.collectors.watching import naming, raw_captures
from tlstax.collectors.watching.raw_captures import KEPT, RawCaptures, remove_before

LARGE: Final = 64 << 20
SECOND_NS: Final = 1_000_000_000


class Recording:
    """A recording that has one kernel frame."""

    def __init__(self, address: int = 0) -> None:
        self.address = address

    def begin(self) -> Iterator[Row]:
        yield schema.Gap(1, "what", "is missing")

    def part_end(self, ahead: Sequence[Row] = ()) -> PartEnd:
        del ahead
        rows: list[Row] = [schema.Frame(1, *KERNEL), schema.Stack(1, "1")]
        return PartEnd(rows, Unnamed({(True, self.address): 1}, []), [])


def window(number: int, *more: Row) -> list[Row]:
    at_ns = number * SECOND_NS
    return [schema.Window(number, None, at_ns, at_ns + SECOND_NS, 1, "flow"), *more]


def thread(number: int, end_ns: int | None = None) -> schema.Thread:
    return schema.Thread(number, number, "one", "connection", 1, end_ns, 1)


class Run:
    """Raw captures, and what became of them."""

    def __init__(self, folder: Path, most_bytes: int = LARGE, address: int = 0) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.finished: list[tuple[Path, int]] = []
        self.raw = RawCaptures(
            folder, most_bytes, self.said.append, lambda *one: self.finished.append(one)
        )
        self.raw.attached(Recording(address), 1, [schema.Meta("command_level", "flow")])

    def close(self) -> list[Path]:
        """The captures that are there."""
        self.raw.detached()
        self.raw.close()
        return sorted(self.folder.rglob("*.tlstax"))


def rows_of(path: Path, table: type[Row]) -> list[Row]:
    with CaptureReader.open(path) as reader:
        return list(reader.rows(table))


def test_each_source_has_a_capture_with_its_windows_and_living_threads(tmp_path: Path) -> None:
    run = Run(tmp_path / "raw/db1")
    assert ((tmp_path / "raw").stat().st_mode & 0o777) == 0o700
    run.raw.window(window(1, thread(1), thread(2)), 11)
    run.raw.window(window(2, thread(2, 5)), 11)
    run.raw.window(window(3), 12)
    first, second = run.close()
    assert [path.stem[-2:] for path in (first, second)] == ["0b", "0c"]
    assert [row.window_id for row in rows_of(first, schema.Window)] == [1, 2]  # type: ignore[union-attr]
    assert rows_of(second, schema.Thread) == [thread(1)]
    assert schema.Meta("watch_source", "12") in rows_of(second, schema.Meta)
    assert {row.key for row in rows_of(second, schema.Meta)} >= {  # type: ignore[union-attr]
        "created_wall_ns", "monotonic_anchor_ns", "hostname", "command_level",
    }  # fmt: skip
    assert set(run.finished) == {(first, 11), (second, 12)}
    assert (first.stat().st_mode & 0o777, first.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_functions_of_the_kernel_have_names(tmp_path: Path) -> None:
    symbols = KernelSymbols()
    address = next(iter(symbols._addresses), 0)
    if not address:
        pytest.skip("the kernel hides its addresses")
    run = Run(tmp_path / "raw", address=address)
    run.raw.window(window(1), 11)
    (path,) = run.close()
    (frame,) = rows_of(path, schema.Frame)
    assert isinstance(frame, schema.Frame)
    assert (frame.symbol, frame.source) == (symbols.place(address).symbol, "kallsyms")


def test_what_happened_is_kept_apart(tmp_path: Path) -> None:
    run = Run(tmp_path / "raw")
    run.raw.window(window(1), 11)
    run.raw.keep()
    run.raw.window(window(2), 12)
    kept, last = sorted(run.close(), key=lambda path: path.name)
    assert (kept.parent.name, last.parent.name) == (KEPT, "raw")
    assert (kept, 11) in run.finished


def test_the_oldest_are_removed_and_kept_ones_stay(tmp_path: Path) -> None:
    run = Run(tmp_path / "raw")
    run.raw.window(window(1), 1)
    run.raw.keep()
    for number in range(2, 8):
        run.raw.window(window(number), number)
        run.raw.close()
    size = max(path.stat().st_size for path in run.folder.glob("*.tlstax"))
    run.raw._most_bytes = 2 * 3 * size
    (run.folder / "other").write_bytes(bytes(10 * size))
    names = {path.name[-9:-7] for path in run.close()}
    assert "01" in names
    assert {name for name in names if name > "01"} == {"05", "06", "07"}
    assert (run.folder / "other").exists()


def test_an_hour_that_is_too_large_ends_early(tmp_path: Path) -> None:
    run = Run(tmp_path / "raw", most_bytes=1 << 20)
    for number in range(1, 200):
        run.raw.window(window(number, *(thread(number * 100 + at, 5) for at in range(100))), 11)
    run.raw.window(window(200), 12)
    found = run.close()
    assert len(found) == 2
    assert sum("not kept" in line for line in run.said) == 1
    assert len(rows_of(found[0], schema.Window)) < 199


def large(number: int) -> list[Row]:
    """A window of some 30 kB."""
    return window(number, *(thread(number * 1000 + at, 5) for at in range(600)))


def named_at_once(_: object) -> Any:
    """Naming that is over."""
    return SimpleNamespace(poll=lambda: 0, returncode=0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_happens_in_an_hour_that_ends_early_keeps_the_capture(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "start", named_at_once)
    run = Run(tmp_path / "raw", most_bytes=1 << 20)
    number = 0
    while not run.said:
        number += 1
        run.raw.window(large(number), 11)
        if number == 1 and when == "before":
            run.raw.keep()
    if when == "after":
        run.raw.keep()
    run.raw.window(window(number + 1), 11)
    assert run.finished == []  # its hour goes on
    run.raw.window(window(number + 2), 12)
    kept, _ = sorted(run.close(), key=lambda path: path.name)
    assert kept.parent.name == KEPT
    assert run.finished[0] == (kept, 11)


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_hour_that_ended_early_stays_until_newer_ones_need_the_room(
    tmp_path: Path, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "start", named_at_once)
    most = 1 << 20
    run = Run(tmp_path / "raw", most_bytes=most)
    number, sizes = 0, list[list[int]]()
    for source in (11, 12, 13, 14):
        run.said.clear()
        while not run.said:
            number += 1
            run.raw.window(large(number), source)
            if is_kept:
                run.raw.keep()
            sizes.append([path.stat().st_size for path in run.folder.rglob("*.tlstax")])
        assert source == 11 or len(sizes[-2]) >= 2
    assert "more than a quarter" in run.said[0]
    assert max(map(sum, sizes)) <= 1.2 * (most if is_kept else most // 2)
    found = run.close()
    assert max(path.name[-9:-7] for path in found) == "0e"
    assert {path.parent.name for path in found} == {KEPT if is_kept else "raw"}


def test_the_open_capture_takes_room_from_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "start", named_at_once)
    most = 1 << 20
    run = Run(tmp_path / "raw", most_bytes=most)
    sizes: list[int] = []
    for number in range(30):
        run.raw.window(large(number), 1 + number // 5)
    while not run.said:
        run.raw.window(large(len(sizes)), 7)
        sizes.append(sum(path.stat().st_size for path in run.folder.rglob("*.tlstax")))
    assert max(sizes) <= most // 2 + (64 << 10)
    assert len(run.close()) >= 2


def test_the_newest_stays_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller --raw than before must not remove the last hour."""
    monkeypatch.setattr(naming, "start", named_at_once)
    run = Run(tmp_path / "raw")
    run.raw.window(large(1), 11)
    run.raw.window(large(2), 12)
    run.raw.detached()
    run.raw.close()
    run.raw._most_bytes = 1 << 10
    run.raw._remove_oldest()
    assert [path.name[-9:-7] for path in run.folder.glob("*.tlstax")] == ["0c"]


def test_a_full_disk_costs_a_capture_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise TlstaxError("cannot write the capture", "disk is full", "free", ExitCode.IO)

    run = Run(tmp_path / "raw")
    run.raw.window(window(1), 11)
    monkeypatch.setattr(CaptureWriter, "add", full)
    run.raw.window(window(2), 11)
    run.raw.window(window(3), 12)
    monkeypatch.undo()
    run.raw.window(window(4), 13)
    (path,) = run.close()
    assert path.name.endswith("0d.tlstax")
    assert len(run.said) == 1
    assert [source for _, source in run.finished] == [13]


def test_a_capture_whose_functions_cannot_be_named_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "MODULE", "tlstax.no_such_module")
    run = Run(tmp_path / "raw")
    run.raw.window(window(1), 11)
    assert len(run.close()) == 1
    assert "could not be named" in run.said[0]


def test_functions_are_named_last_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nice: list[int] = []
    monkeypatch.setattr(naming, "name", lambda _: nice.append(os.getpriority(os.PRIO_PROCESS, 0)))
    asked = io.BytesIO(pickle.dumps(naming.Naming(tmp_path, os.getpid(), Unnamed({}, []))))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=asked))
    # In a child: who was nice once stays so.
    assert run_in_child("naming", lambda: (naming._main(), *nice)) == (0, 19)


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_capture_stays_where_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "start", no_room)
    run = Run(tmp_path / "raw")
    run.raw.window(window(1), 11)
    run.raw.window(window(2), 12)
    paths = run.close()
    assert len(paths) == 2
    assert [source for _, source in run.finished] == [11, 12]
    assert all("could not be named" in line for line in run.said)


def test_a_folder_that_is_removed_costs_the_hour(tmp_path: Path) -> None:
    run = Run(tmp_path / "raw" / "db1")
    run.raw.window(window(1), 11)
    shutil.rmtree(tmp_path / "raw")
    for number in range(2, 5):
        run.raw.window(window(number), 11)
    assert ["are not kept" in line for line in run.said] == [True]
    run.raw.window(window(5), 12)
    (path,) = run.close()
    assert path.name.endswith("0c.tlstax")


def test_captures_that_are_given_up_leave_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "raw")
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(CaptureWriter, "commit_if_free", no_room)
    for number in range(1, 6):
        run.raw.window(window(number), number)
    assert len(os.listdir("/proc/self/fd")) == before
    assert run.close() == []
    assert len(run.said) == 1


def test_naming_that_takes_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_captures, "_NAMING_S", 0)
    run = Run(tmp_path / "raw")
    run.raw.window(window(1), 11)
    (path,) = run.close()
    assert run.finished == [(path, 11)]
    assert "could not be named" in run.said[0]


def test_captures_of_a_former_host_go_by_their_age(tmp_path: Path) -> None:
    """Also those that were kept, and what a killed watch left; no file of anybody else."""
    folder = tmp_path / "raw/db1"
    names = [f"202611{day:02d}T120000Z-{'0' * 16}.tlstax" for day in (1, 20)]
    (folder / KEPT).mkdir(parents=True)
    for name in names:
        for path in (folder / name, folder / f"{name}-journal", folder / KEPT / name):
            path.touch()
    day_ns = 86400 * SECOND_NS
    first_ns = 1_793_491_200 * SECOND_NS  # 2026-11-01
    assert not remove_before(folder, first_ns + 10 * day_ns)
    assert {path.name[:8] for path in folder.rglob("*.tlstax*")} == {"20261120"}
    (folder / "notes").touch()
    assert remove_before(folder, first_ns + 30 * day_ns)
    assert [path.name for path in tmp_path.rglob("*")] == ["raw", "db1", "notes"]
    assert remove_before(tmp_path / "none", 0)

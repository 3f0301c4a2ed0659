# SPDX-License-Identifier: GPL-2.0-only
"""Rollups that cannot be written after their hour was compacted are counted once all the same."""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, TIERS
from tlstax.analysis.fleet.continuous import rollups
from tlstax.analysis.fleet.store import compaction, layout, parquet_files
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.printable import output_error
from tlstax.tests.unit.fleet.test_watch_hours import Once, table
from tlstax.tests.unit.fleet.test_watch_rollups import sums
from tlstax.tests.watched_rows import Watching, by_window


def room_for(count: int) -> Callable[..., int]:
    """Writes so many files; then the disk is full."""
    write, written = parquet_files.write, list[Path]()

    def limited(path: Path, *rest: Any) -> int:
        if len(written) >= count:
            raise output_error(str(path), OSError(28, "No space left on device"))
        written.append(path)
        return write(path, *rest)

    return limited


@pytest.mark.parametrize("count", [0, 2, 5, 9])
@pytest.mark.parametrize("is_over", [False, True])
def test_no_tier_has_rows_twice(
    demo_tables: Tables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    is_over: bool,
) -> None:
    """Whether the hour goes on or is over by then."""
    rows = by_window(demo_tables)
    watching, whole = (Watching(tmp_path / name, demo_tables) for name in ("data", "whole"))
    whole.all()
    watching.take(rows[:35])
    compaction.compact(tmp_path / "data")
    with monkeypatch.context() as patched:
        patched.setattr(parquet_files, "write", room_for(count))
        if is_over:
            watching.sink.detached()
            watching.sink.settle()
        watching.take(rows[35:60])
    watching.take(rows[60:])
    watching.end()
    for tier in TIERS:
        assert sums(tmp_path / "data", tier) == sums(tmp_path / "whole", tier)


@pytest.mark.parametrize("lacking", [1, 2, 5])
def test_a_compaction_between_a_failure_and_the_next_attempt(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    """What some files had of the failed rollup was written again under another source."""
    watching, whole = (Watching(tmp_path / name, demo_tables) for name in ("data", "whole"))
    rows = by_window(demo_tables)
    whole.all()
    watching.take(rows[:20])
    watching.sink._write()
    watching.take(rows[20:21])
    segment = watching.sink._segment
    assert segment
    with monkeypatch.context() as patched:
        patched.setattr(parquet_files, "write", room_for(len(segment._files()) - lacking))
        watching.sink._write()
        assert "kept in memory" in watching.said[-1]
    compaction.compact(tmp_path / "data")
    watching.take(rows[21:])
    watching.end()
    for tier in TIERS:
        assert sums(tmp_path / "data", tier) == sums(tmp_path / "whole", tier)


@pytest.mark.parametrize("is_over", [False, True])
def test_triggers_wait_once_however_often_it_is_tried(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """Of more than eight the oldest would be lost."""
    monkeypatch.setattr(rollups, "Triggers", Once)
    watching, rows = Watching(tmp_path / "data", demo_tables), by_window(demo_tables)
    watching.take(rows[:15])
    compaction.compact(tmp_path / "data")
    with monkeypatch.context() as patched:
        patched.setattr(parquet_files, "write", room_for(0))
        watching.take(rows[15:])
        if is_over:
            watching.sink.detached()
            watching.sink.settle()
            watching.sink.settle()
        assert len(watching.sink._explained._unwritten) == 1
    watching.end()
    assert len(table(tmp_path / "data", columns.Finding)) == 1


def test_estimates_of_an_hour_that_is_written_late_stay(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went into the file of before, which the late sums then replaced from memory."""
    watching, rows = Watching(tmp_path / "data", demo_tables), by_window(demo_tables)
    watching.take(rows[:30])
    watching.offset_ns += HOUR_NS
    with monkeypatch.context() as patched:
        patched.setattr(parquet_files, "write", room_for(0))
        watching.take(rows[30:31])
        (late,) = watching.sink._late
        (start,) = {int(key[0]) for key in late.unwritten["10s"].interval}
        none = dict.fromkeys(columns.Interval._fields[3:], 0)
        known = none | {"record_crypto_ns": 7, "record_observed_ns": SECOND_NS}
        row = columns.Interval(late.of.host, start, late.of.source_id, **known)
        watching.sink._explained._add(late.of, {columns.Interval: [row]})
        watching.sink.settle()
        assert len(watching.sink._explained._unwritten) == 1
    watching.take(rows[31:])
    watching.end()
    (found,) = (
        row
        for row in table(tmp_path / "data", columns.Interval)
        if row["source_id"] == late.of.source_id
    )
    assert (found["record_crypto_ns"], found["record_observed_ns"]) == (7, SECOND_NS)


@contextlib.contextmanager
def held_by_another(data: Path) -> Iterator[None]:
    """Another process replaces files of the data set."""
    fork = multiprocessing.get_context("fork")
    is_held, is_over = fork.Event(), fork.Event()

    def hold() -> None:
        with layout.lock(data, exclusive=True):
            is_held.set()
            is_over.wait(20)

    process = fork.Process(target=hold)
    process.start()
    is_held.wait(60)
    try:
        yield
    finally:
        is_over.set()
        process.join()


def test_a_watch_does_not_wait_for_who_replaces_files(demo_tables: Tables, tmp_path: Path) -> None:
    """Until a compaction had ended it took no window, and SIGTERM did nothing."""
    watching, whole = (Watching(tmp_path / name, demo_tables) for name in ("data", "whole"))
    rows = by_window(demo_tables)
    whole.all()
    watching.take(rows[:30])
    watching.offset_ns += HOUR_NS
    with held_by_another(tmp_path / "data"):
        for one in rows[30:50]:
            start = time.thread_time(), time.monotonic()
            watching.sink.window(one)
            worked_s = time.thread_time() - start[0]
            assert time.monotonic() - start[1] < worked_s + 1
    assert "another process is replacing files of it" in watching.said[-1]
    watching.take(rows[50:])
    watching.end()
    for tier in TIERS:
        assert sums(tmp_path / "data", tier) == sums(tmp_path / "whole", tier)


def test_compaction_lets_others_write_between_folders(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Watching(tmp_path, demo_tables).all()
    held: list[bool] = []
    lock = layout.lock

    @contextlib.contextmanager
    def counted(data: Path, *, exclusive: bool) -> Iterator[None]:
        held.append(exclusive)
        with lock(data, exclusive=exclusive):
            yield

    monkeypatch.setattr(layout, "lock", counted)
    folders = {path.parent for path in tmp_path.rglob("*.parquet")}
    assert compaction.compact(tmp_path, 0).hours_count == len(folders)
    assert held == [True] * len(folders)

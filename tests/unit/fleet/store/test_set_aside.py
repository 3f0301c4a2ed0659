# SPDX-License-Identifier: GPL-2.0-only
"""A watch that ends while somebody else holds its data set loses nothing, and counts nothing twice.

Killed in the middle, it loses what any killed watch does: the last rollup.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import SECOND_NS, TIERS
from tlstax.analysis.fleet.continuous import rollups
from tlstax.analysis.fleet.store import aside, compaction, parquet_files
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.unit.fleet.test_watch_hours import table
from tlstax.tests.unit.fleet.test_watch_retries import held_by_another, room_for
from tlstax.tests.unit.fleet.test_watch_rollups import sums
from tlstax.tests.watched_rows import NOON_NS, Watching, by_window


class Killed(BaseException):
    """As kill -9: nobody catches it."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "_LAST_WAIT_S", 0.1)


def all_sums(data: Path) -> list[object]:
    return [sums(data, tier) for tier in TIERS]


@pytest.fixture(scope="module")
def wanted(demo_tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The sums of a watch that nobody was in the way of."""
    data = tmp_path_factory.mktemp("whole")
    Watching(data, demo_tables).all()
    return all_sums(data)


def ended_while_held(tables: Tables, data: Path, written: int) -> Watching:
    """Of 60 windows so many are in the data set."""
    watching = Watching(data, tables)
    watching.take(by_window(tables)[:written])
    if written:
        watching.sink._write()
    with held_by_another(data):
        watching.take(by_window(tables)[written:])
        watching.end()
    return watching


def restart(tables: Tables, data: Path) -> None:
    """The next watch of the host, which has nothing of its own to say yet."""
    watching = Watching(data, tables)
    watching.sink._write()
    watching.end()


@pytest.mark.parametrize("written", [0, 40])
@pytest.mark.parametrize("compacted", ["", "before", "twice"])
def test_the_next_start_takes_the_last_rollup_up(
    demo_tables: Tables, wanted: list[object], tmp_path: Path, written: int, compacted: str
) -> None:
    data = tmp_path / "data"
    watching = ended_while_held(demo_tables, data, written)
    assert "rollups of 1 hours were set aside" in watching.said[-1]
    assert not any("lost" in line for line in watching.said)
    if compacted:
        compaction.compact(data)
        if compacted == "twice":
            compaction.compact(data, NOON_NS + 10**18)
    restart(demo_tables, data)
    restart(demo_tables, data)
    assert aside.folders(data) == []
    assert all_sums(data) == wanted


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_restart_in_the_middle_of_a_compaction(
    demo_tables: Tables,
    wanted: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    """The compaction that was in the way has some folders done: it adds what came meanwhile."""
    data, hour, asked = tmp_path / "data", compaction._hour, list[object]()
    watching = Watching(data, demo_tables)
    watching.take(by_window(demo_tables)[:40])
    watching.sink._write()

    def in_the_middle(*of: Any) -> int:
        if len(asked) == count:
            with held_by_another(data):
                watching.take(by_window(demo_tables)[40:])
                watching.end()
        asked.append(of)
        return hour(*of)

    monkeypatch.setattr(compaction, "_hour", in_the_middle)
    compaction.compact(data)
    assert all_sums(data) == wanted
    assert not [*data.rglob("part-*")]


def dies_after(count: int, do: Callable[..., Any]) -> Callable[..., Any]:
    done = list[object]()

    def limited(*of: Any, **more: Any) -> Any:
        if len(done) == count:
            raise Killed
        done.append(of)
        return do(*of, **more)

    return limited


@pytest.mark.parametrize("count", [0, 1, 4])
def test_killed_while_it_sets_aside(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """What was written before counts, and nothing else."""
    data = tmp_path / "data"
    watching = Watching(data, demo_tables)
    watching.take(by_window(demo_tables)[:40])
    watching.sink._write()
    before = all_sums(data)
    with held_by_another(data), monkeypatch.context() as patched:
        watching.take(by_window(demo_tables)[40:])
        patched.setattr(parquet_files, "write", dies_after(count, parquet_files.write))
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            watching.end()
        watching.kill()
    (left,) = (data / ".aside").iterdir()
    restart(demo_tables, data)
    assert all_sums(data) == before
    os.utime(left, (0, 0))
    assert aside.take_up(data) == []
    assert [*(data / ".aside").iterdir()] == []


@pytest.mark.parametrize("count", [0, 1, 4, 9])
@pytest.mark.parametrize("compacted", [False, True])
def test_killed_while_it_is_taken_up(
    demo_tables: Tables,
    wanted: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    compacted: bool,
) -> None:
    data = tmp_path / "data"
    ended_while_held(demo_tables, data, 40)
    with monkeypatch.context() as patched:
        patched.setattr(parquet_files, "sync", dies_after(count, parquet_files.sync))
        with pytest.raises(Killed):
            aside.take_up(data)
    if compacted:
        compaction.compact(data)
    restart(demo_tables, data)
    assert all_sums(data) == wanted


def test_a_copy_of_what_was_taken_up_counts_once(
    demo_tables: Tables, wanted: list[object], tmp_path: Path
) -> None:
    """As rsync brings it again after the compaction of a collecting host."""
    data = tmp_path / "data"
    ended_while_held(demo_tables, data, 40)
    ((folder, _),) = aside.folders(data)
    folder.rename(tmp_path / "kept")
    for _ in range(2):
        shutil.copytree(tmp_path / "kept", folder)
        compaction.compact(data)
        assert all_sums(data) == wanted


def test_a_full_disk_loses_it_and_says_so(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching(tmp_path, demo_tables)
    monkeypatch.setattr(parquet_files, "write", room_for(0))
    watching.all()
    assert "rollups of 1 hours could not be written and are lost" in watching.said
    assert aside.folders(tmp_path) == []


def test_findings_and_estimates_are_set_aside(demo_tables: Tables, tmp_path: Path) -> None:
    """The estimates belong into the intervals, which are set aside, too."""
    watching = Watching(tmp_path, demo_tables)
    rows = by_window(demo_tables)
    watching.take(rows[:40])
    watching.sink._write()
    with held_by_another(tmp_path):
        watching.take(rows[40:])
        segment = watching.sink._segment
        assert segment
        start = min(int(key[0]) for key in segment._open["10s"].interval)
        none = dict.fromkeys(columns.Interval._fields[3:], 0)
        known = none | {"record_crypto_ns": 7, "record_observed_ns": SECOND_NS}
        of = segment.of
        watching.sink._explained._add(
            of,
            {
                columns.Interval: [columns.Interval(of.host, start, of.source_id, **known)],
                columns.Finding: [
                    columns.Finding(of.host, segment.hour_ns, of.source_id, "x", "all", 0.5, 1, "x")
                ],
            },
        )
        watching.end()
    assert not any("lost" in line for line in watching.said)
    assert table(tmp_path, columns.Finding) == []
    restart(demo_tables, tmp_path)
    assert [row["finding"] for row in table(tmp_path, columns.Finding)] == ["x"]
    assert sum(row["record_crypto_ns"] for row in table(tmp_path, columns.Interval)) == 7
    assert sum(row["recorded_ns"] for row in table(tmp_path, columns.Interval)) == sum(
        window.end_ns - window.start_ns for window in demo_tables.windows
    )

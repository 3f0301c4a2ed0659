# SPDX-License-Identifier: GPL-2.0-only
"""A recording that is added again: two writers, a writer that dies, and damaged files beside it."""

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TIERS
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, layout, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, Place, part_name
from tlstax.tests.fleet_rows import of_cluster, renamed, shorter, totals


def test_two_copies_of_a_recording_at_once_leave_the_longer_one(
    rolled: RolledUp, half: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = multiprocessing.get_context("fork")
    data, began = tmp_path / "data", fork.Event()
    adding.add(rolled, tmp_path / "reference")
    write = parquet_files.write

    def slowly(*arguments: Any) -> int:
        began.set()
        time.sleep(0.02)
        return write(*arguments)

    monkeypatch.setattr(parquet_files, "write", slowly)
    shorter = fork.Process(target=adding.add, args=(half, data))
    shorter.start()
    assert began.wait(30)
    monkeypatch.setattr(parquet_files, "write", write)
    # Without a lock this one is done while the shorter one still writes over its files.
    adding.add(rolled, data)
    shorter.join(60)
    assert shorter.exitcode == 0
    assert totals(data) == totals(tmp_path / "reference")


def test_a_writer_that_waited_looks_again(
    rolled: RolledUp, half: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its recording is in a compacted file, so it waits for all others; meanwhile one of them adds a
    # longer copy.
    adding.add(shorter(half), tmp_path)
    compaction.compact(tmp_path)
    waited: list[bool] = []
    lock = layout.lock

    @contextlib.contextmanager
    def lock_late(data: Path, *, exclusive: bool) -> Iterator[None]:
        if exclusive and not waited:
            waited.append(True)
            assert adding.add(rolled, data) == adding.REPLACED
        with lock(data, exclusive=exclusive):
            yield

    monkeypatch.setattr(layout, "lock", lock_late)
    assert adding.add(half, tmp_path) == adding.LONGER
    assert waited
    monkeypatch.undo()
    adding.add(rolled, tmp_path / "reference")
    # Frames that only the first half needed stay: they are names, and not counted.
    assert {**totals(tmp_path), "frames": 0} == {**totals(tmp_path / "reference"), "frames": 0}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("at", [0, 1, 12])
def test_a_recording_replaced_in_part_is_not_counted(
    rolled: RolledUp,
    half: RolledUp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    is_compacted: bool,
) -> None:
    # Else its old intervals would be divided into its new ledger.
    adding.add(half, tmp_path)
    if is_compacted:
        compaction.compact(tmp_path)
    written: list[Path] = []
    write = parquet_files.write

    def die_later(path: Path, *rest: Any) -> int:
        if len(written) == at:
            raise KeyboardInterrupt
        written.append(path)
        return write(path, *rest)

    monkeypatch.setattr(parquet_files, "write", die_later)
    with pytest.raises(KeyboardInterrupt):
        adding.add(rolled, tmp_path)
    monkeypatch.setattr(parquet_files, "write", write)
    for tier in TIERS:
        assert totals(tmp_path, tier)["interval"] is None
    adding.add(rolled, tmp_path)
    adding.add(rolled, tmp_path / "reference")
    assert {**totals(tmp_path), "frames": 0} == {**totals(tmp_path / "reference"), "frames": 0}


def test_another_cluster_of_a_recording_is_no_longer_recording(
    rolled: RolledUp, tmp_path: Path
) -> None:
    adding.add(rolled, tmp_path)
    assert adding.add(of_cluster(rolled, "eu"), tmp_path) == adding.CHANGED


def damage(path: Path, most_bytes: int = 40) -> None:
    """Its footer stays whole, its pages do not: as after a fault of a disk."""
    content = path.read_bytes()
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    end = min(pages, 4 + most_bytes)
    path.write_bytes(content[:4] + bytes(end - 4) + content[end:])


def test_a_part_that_is_damaged_inside_is_named_and_left_alone(
    rolled: RolledUp, tmp_path: Path
) -> None:
    for number in range(1, 4):
        adding.add(renamed(rolled, f"db{number}", number), tmp_path)
    (folder,) = tmp_path.glob("tier=1h/table=ledger/*/*")
    bad = folder / part_name(2)
    damage(bad)
    assert compaction.compact(tmp_path).left_out == [f"{bad} was not merged: it is damaged"]
    assert {path.name for path in folder.iterdir()} == {bad.name, COMPACTED}
    hosts = set(pq.ParquetFile(folder / COMPACTED).read()["host"].to_pylist())
    assert hosts == {"db1", "db3"}


def test_a_compacted_file_that_is_damaged_inside_is_left_alone(
    rolled: RolledUp, tmp_path: Path
) -> None:
    for number in (1, 3):
        adding.add(renamed(rolled, f"db{number}", number), tmp_path)
    compaction.compact(tmp_path)
    adding.add(renamed(rolled, "db2", 2), tmp_path)
    (bad,) = tmp_path.glob("tier=1h/table=ledger/*/*/compacted.parquet")
    damage(bad)
    assert compaction.compact(tmp_path).left_out == [f"{bad} was not merged: it is damaged"]
    assert {path.name for path in bad.parent.iterdir()} == {part_name(2), COMPACTED}
    with pytest.raises(TlstaxError, match=r"is damaged.*Remove that file") as refused:
        adding.add(of_cluster(renamed(rolled, "db1", 1), "eu"), tmp_path)
    assert refused.value.exit_code == ExitCode.CAPTURE


def test_what_is_beside_a_damaged_compacted_file_is_read(rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(renamed(rolled, "db1", 1), tmp_path)
    expected = totals(tmp_path)
    for path in tmp_path.rglob("table=ledger/*/*/part-*.parquet"):
        compacted = path.with_name(COMPACTED)
        compacted.write_bytes(path.read_bytes())
        damage(compacted, compacted.stat().st_size)
    found = totals(tmp_path)
    assert found.pop("left_out")
    expected.pop("left_out")
    assert found == expected


def test_a_recording_is_replaced_without_reading_other_hosts(
    rolled: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An hour of 10,000 hosts does not fit into memory.
    monkeypatch.setattr(parquet_files, "ROWS_OF_A_GROUP", 10)
    monkeypatch.setattr(compaction, "ROWS_OF_A_GROUP", 10)
    for number in range(1, 9):
        adding.add(renamed(rolled, f"db{number}", number), tmp_path)
    compaction.compact(tmp_path)
    (path,) = tmp_path.glob("tier=1h/table=ledger/*/*/*.parquet")
    place = Place("1h", columns.Ledger, int(rolled.rows["1h"][columns.Ledger][0].start_wall_ns))
    assert max(rows.num_rows for rows in parquet_files.groups(path)) <= 10
    asked = parquet_files._groups_with(path, place.table, "db5")
    assert 0 < len(asked) < pq.ParquetFile(path).num_row_groups / 4
    before = totals(tmp_path)
    changed = of_cluster(renamed(rolled, "db5", 5), "eu")
    assert adding.add(changed, tmp_path) == adding.CHANGED
    assert totals(tmp_path) == before

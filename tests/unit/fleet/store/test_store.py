# SPDX-License-Identifier: GPL-2.0-only
"""Nothing is counted twice or lost: added again, longer, late, compacted, half-written, too new."""

import multiprocessing
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TABLES, TIERS
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, part_name
from tlstax.collectors.capture.schema import table_name
from tlstax.tests.fleet_rows import renamed, totals


def files_of(data: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(data)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in data.rglob("*.parquet")
    }


def test_adding_twice_changes_nothing(rolled: RolledUp, tmp_path: Path) -> None:
    assert adding.add(rolled, tmp_path) == adding.ADDED
    before = files_of(tmp_path)
    assert adding.add(rolled, tmp_path) == adding.KNOWN
    assert files_of(tmp_path) == before


def test_a_recording_that_went_on_replaces_its_first_part(
    rolled: RolledUp, half: RolledUp, tmp_path: Path
) -> None:
    adding.add(rolled, tmp_path / "whole")
    data = tmp_path / "grown"
    assert adding.add(half, data) == adding.ADDED
    assert adding.add(rolled, data) == adding.REPLACED
    assert totals(data) == totals(tmp_path / "whole")
    assert adding.add(half, data) == adding.LONGER
    assert totals(data) == totals(tmp_path / "whole")


def test_only_its_owner_reads_the_data_set(rolled: RolledUp, tmp_path: Path) -> None:
    data = tmp_path / "new"
    adding.add(rolled, data)
    compaction.compact(data)
    for path in [data, *data.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("tier", TIERS)
def test_compaction_keeps_every_sum(rolled: RolledUp, tmp_path: Path, tier: str) -> None:
    for number in range(1, 4):
        adding.add(renamed(rolled, f"db{number}", number), tmp_path)
    before = totals(tmp_path, tier)
    outcome = compaction.compact(tmp_path)
    assert outcome.merged_count == 3 * outcome.hours_count
    assert {path.name for path in tmp_path.rglob("*.parquet")} == {COMPACTED}
    assert totals(tmp_path, tier) == before
    assert compaction.compact(tmp_path) == (0, 0, [])


def test_late_data_joins_what_was_compacted(
    rolled: RolledUp, half: RolledUp, tmp_path: Path
) -> None:
    reference = tmp_path / "reference"
    for one in (renamed(rolled, "db1", 1), renamed(rolled, "db0", 2)):
        adding.add(one, reference)
    data = tmp_path / "late"
    adding.add(renamed(half, "db1", 1), data)
    compaction.compact(data)
    assert adding.add(renamed(half, "db1", 1), data) == adding.KNOWN
    adding.add(renamed(rolled, "db0", 2), data)
    assert adding.add(renamed(rolled, "db1", 1), data) == adding.REPLACED
    # Frames that only the first half needed stay: they are names, and not counted.
    reference_sums = {**totals(reference), "frames": None}
    assert {**totals(data), "frames": None} == reference_sums
    compaction.compact(data)
    assert {**totals(data), "frames": None} == reference_sums


def test_rows_are_sorted_by_host(rolled: RolledUp, tmp_path: Path) -> None:
    for number in (3, 1, 2):
        adding.add(renamed(rolled, f"db{number}", number), tmp_path)
    compaction.compact(tmp_path)
    for path in tmp_path.rglob("table=ledger/**/*.parquet"):
        hosts = pq.ParquetFile(path).read()["host"].to_pylist()
        assert hosts == sorted(hosts)
        assert len(set(hosts)) == 3


def test_many_row_groups_are_merged_in_order(
    rolled: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if an hour had millions of rows: groups of ten, written as soon as hosts part.
    monkeypatch.setattr(parquet_files, "ROWS_OF_A_GROUP", 10)
    monkeypatch.setattr(compaction, "ROWS_OF_A_GROUP", 10)
    for number in range(1, 6):
        adding.add(renamed(rolled, f"db{number}", number), tmp_path)
        compaction.compact(tmp_path)
    (path,) = tmp_path.glob("tier=1h/table=ledger/**/*.parquet")
    rows = pq.ParquetFile(path)
    hosts = rows.read()["host"].to_pylist()
    assert rows.num_row_groups > 5
    assert hosts == sorted(hosts)
    assert len(hosts) == 5 * len(rolled.rows["1h"][columns.Ledger])


def _add_one(rolled: RolledUp, number: int, data: Path) -> None:
    adding.add(renamed(rolled, f"db{number}", number), data)


def _compact(data: Path) -> None:
    for _ in range(5):
        compaction.compact(data)


def test_writers_and_compaction_at_once_lose_nothing(rolled: RolledUp, tmp_path: Path) -> None:
    data, reference = tmp_path / "data", tmp_path / "reference"
    _add_one(rolled, 1, data)
    for number in range(1, 7):
        _add_one(rolled, number, reference)
    fork = multiprocessing.get_context("fork")
    # Two of the recordings are added by two writers each.
    workers = [
        fork.Process(target=_add_one, args=(rolled, number, data))
        for number in (2, 3, 4, 4, 5, 6, 6)
    ]
    workers.append(fork.Process(target=_compact, args=(data,)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    assert totals(data) == totals(reference)
    assert list(data.rglob("*.partial")) == []


def test_readers_count_once_what_is_in_both_files(rolled: RolledUp, tmp_path: Path) -> None:
    # A compaction that was killed after its rename leaves the merged files.
    adding.add(rolled, tmp_path)
    before, kept = totals(tmp_path), {}
    for path in tmp_path.rglob("part-*.parquet"):
        kept[path] = path.read_bytes()
    compaction.compact(tmp_path)
    for path, content in kept.items():
        path.write_bytes(content)
    assert totals(tmp_path) == before
    compaction.compact(tmp_path)
    assert totals(tmp_path) == before


def test_a_recording_added_in_part_is_not_counted(
    rolled: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = parquet_files.write
    written: list[Path] = []

    def die_later(path: Path, *rest: Any) -> int:
        if len(written) == 12:
            raise KeyboardInterrupt
        written.append(path)
        return write(path, *rest)

    monkeypatch.setattr(parquet_files, "write", die_later)
    with pytest.raises(KeyboardInterrupt):
        adding.add(rolled, tmp_path)
    assert not list(tmp_path.rglob("table=interval/**/*.parquet"))
    monkeypatch.setattr(parquet_files, "write", write)
    assert adding.add(rolled, tmp_path) == adding.ADDED


@pytest.mark.parametrize("content", [b"", b"PAR1", None])
def test_a_half_written_file_is_named_and_not_read(
    rolled: RolledUp, tmp_path: Path, content: bytes | None
) -> None:
    adding.add(rolled, tmp_path)
    before = totals(tmp_path)
    (whole,) = tmp_path.glob("tier=1h/table=ledger/**/*.parquet")
    half = whole.with_name(part_name(77))
    half.write_bytes(whole.read_bytes()[:-100] if content is None else content)
    after = totals(tmp_path)
    assert after.pop("left_out") == [f"{half} was not read: it is no whole Parquet file"]
    before.pop("left_out")
    assert after == before
    assert compaction.compact(tmp_path).left_out == [
        f"{half} was not merged: it is no whole Parquet file"
    ]


def test_unfinished_and_foreign_files_are_not_data(rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(rolled, tmp_path)
    (whole,) = tmp_path.glob("tier=1h/table=ledger/**/*.parquet")
    whole.with_name(".part-1.parquet.9.partial").write_bytes(b"half")
    other = pa.table({"host": ["db1"], "on_cpu_ns": [1]})
    pq.write_table(other, whole.with_name(part_name(5)))
    found = totals(tmp_path)["left_out"]
    assert len(found) == 1
    assert "it is no file of the table ledger" in found[0]


def test_a_file_of_a_newer_version_is_refused_by_name(
    rolled: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "SCHEMA_VERSION", columns.SCHEMA_VERSION + 1)
    adding.add(rolled, tmp_path)
    monkeypatch.undo()
    with pytest.raises(TlstaxError, match=r"part-.*parquet.*version 3 .* up to 2") as refused:
        totals(tmp_path)
    assert refused.value.exit_code == ExitCode.CAPTURE


def test_paths_are_those_that_the_documentation_names(rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(rolled, tmp_path)
    names = {path.parent.relative_to(tmp_path).parts for path in tmp_path.rglob("*.parquet")}
    assert {parts[0] for parts in names} == {f"tier={tier}" for tier in TIERS}
    assert {parts[1] for parts in names} < {f"table={table_name(table)}" for table in TABLES}
    assert {parts[2:] for parts in names} == {("date=2026-11-21", "hour=07")}


def test_hosts_of_one_build_share_their_frames(demo: Path, tmp_path: Path) -> None:
    for host in ("db1", "db2"):
        adding.add(capture.read(demo, host), tmp_path)
    compaction.compact(tmp_path)
    (path,) = tmp_path.glob("tier=1h/table=frame/**/*.parquet")
    ids = pq.ParquetFile(path).read()["frame_id"].to_pylist()
    assert len(ids) == len(set(ids))

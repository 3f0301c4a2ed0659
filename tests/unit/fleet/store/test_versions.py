# SPDX-License-Identifier: GPL-2.0-only
"""Files of version 1 count like those of today: in answers, when merged, when removed."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tlstax.analysis.fleet import columns, location
from tlstax.analysis.fleet.columns import Row
from tlstax.analysis.fleet.continuous.rotation import rotate
from tlstax.analysis.fleet.engines.opening import open_engine
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, layout, parquet_files
from tlstax.tests.fleet_rows import ADDED, as_version_1, renamed, totals

PARTIAL_NS = 7_000


def seen_in_part(rolled: RolledUp) -> RolledUp:
    """The same with a part of the time in which there were signatures alone."""
    rows = {
        tier: {
            table: [row._replace(partial_ns=PARTIAL_NS) for row in found]  # type: ignore[call-arg]
            if table is columns.Interval
            else found
            for table, found in of.items()
        }
        for tier, of in rolled.rows.items()
    }
    return RolledUp(rolled.recording, rows)


@pytest.fixture
def mixed(rolled: RolledUp, tmp_path: Path) -> Path:
    """A data set with a host of version 1 and one of today."""
    data = tmp_path / "data"
    adding.add(renamed(rolled, "old", 1), data)
    assert as_version_1(data) >= len(ADDED)
    adding.add(seen_in_part(renamed(rolled, "new", 2)), data)
    return data


def partial(data: Path) -> dict[str, list[Any]]:
    """The times with signatures alone, by host."""
    files, folder = location.select(data, "1h", [columns.Interval], (None, None))
    assert files.left_out == []
    with open_engine("duckdb", files, folder) as engine:
        rows = engine.query("SELECT host, partial_ns FROM interval").to_pylist()
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["host"], []).append(row["partial_ns"])
    return found


def test_later_columns_have_a_default_that_every_engine_knows() -> None:
    for table, added in ADDED:
        assert set(added.values()) <= {0, ""}
        assert table._fields[-len(added) :] == tuple(added)


def test_answers_have_both(mixed: Path, rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(renamed(rolled, "old", 1), tmp_path / "today")
    adding.add(renamed(rolled, "new", 2), tmp_path / "today")
    for tier in ("1h", "1m"):
        assert totals(mixed, tier) == totals(tmp_path / "today", tier)
    found = partial(mixed)
    assert set(found["old"]) == {0}
    assert set(found["new"]) == {PARTIAL_NS}


def test_files_of_version_1_alone_have_answers(rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(renamed(rolled, "old", 1), tmp_path)
    whole = totals(tmp_path)
    as_version_1(tmp_path)
    assert totals(tmp_path) == whole
    assert adding.add(renamed(rolled, "old", 1), tmp_path) == adding.KNOWN


def test_they_are_merged(mixed: Path) -> None:
    before, found = totals(mixed), partial(mixed)
    assert compaction.compact(mixed).left_out == []
    assert totals(mixed) == before
    assert partial(mixed) == found
    for path in mixed.glob("tier=1h/table=interval/**/*.parquet"):
        assert path.name == layout.COMPACTED
        assert pq.ParquetFile(path).schema_arrow.names == list(columns.Interval._fields)


def test_they_are_removed(mixed: Path) -> None:
    rotate(mixed, "old", 2**62)
    assert set(partial(mixed)) == {"new"}


def test_a_column_that_was_always_there_is_required(rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(renamed(rolled, "old", 1), tmp_path)
    as_version_1(tmp_path, without=["record_observed_ns"])
    (interval,) = tmp_path.glob("tier=1h/table=interval/**/*.parquet")
    with pytest.raises(parquet_files.UnreadableError, match="its columns are not those"):
        parquet_files.check(interval, columns.Interval)


def test_rows_are_as_if_it_had_been_written_today(rolled: RolledUp, tmp_path: Path) -> None:
    adding.add(renamed(rolled, "old", 1), tmp_path)
    (path,) = tmp_path.glob("tier=1h/table=handshake/**/*.parquet")
    table: type[Row] = columns.Handshake
    before = parquet_files.rows_of(path, table, "old", 1)
    as_version_1(tmp_path)
    assert parquet_files.rows_of(path, table, "old", 1).equals(before)

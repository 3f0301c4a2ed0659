# SPDX-License-Identifier: GPL-2.0-only
"""A question that is asked while its files are compacted has the answer of before."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax import TlstaxError
from tlstax.analysis.fleet import columns, location
from tlstax.analysis.fleet.columns import HOUR_NS
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.store import compaction, parquet_files, selection
from tlstax.analysis.fleet.store.layout import Place, part_name
from tlstax.tests.fleet_replay import START_NS
from tlstax.tests.unit.fleet.test_observed import interval

EVER = 1 << 62


def add(data: Path, source: int, hour: int = 0) -> None:
    """A recording of one interval."""
    start_ns = START_NS + hour * HOUR_NS
    row = interval(0, f"db{source}", served_ns=1)._replace(source_id=source, start_wall_ns=start_ns)
    place = Place("1h", columns.Interval, start_ns)
    path = place.folder(data) / part_name(source)
    rows = parquet_files.table_of(columns.Interval, [row])
    parquet_files.write(path, columns.Interval, [rows])


def test_a_day_that_is_merged_while_its_hours_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hours were gone, and the file of the day was in no list: the day was missing."""
    for hour in range(3):
        add(tmp_path, 1, hour)
    compaction.compact(tmp_path, 0)
    check = parquet_files.check

    def checked(path: Path, table: Any) -> Any:
        monkeypatch.setattr(parquet_files, "check", check)
        compaction.compact(tmp_path, EVER)
        return check(path, table)

    monkeypatch.setattr(parquet_files, "check", checked)
    found = selection.select(tmp_path, "1h", [columns.Interval])
    assert found.left_out == []
    (path,) = found.files[columns.Interval]
    assert sum(rows.num_rows for rows in parquet_files.groups(path)) == 3


@contextlib.contextmanager
def compacted_after_the_choice(
    data: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool = False, times: int = 1
) -> Iterator[None]:
    """Compaction, which is killed before it removes what it merged."""
    select, left = location.select, list(range(times))

    def chosen(*arguments: Any) -> Any:
        made = select(*arguments)
        if left:
            add(data, 10 + left.pop()) if times > 1 else None
            with monkeypatch.context() as patched:
                if is_killed:
                    patched.setattr(Path, "unlink", lambda *_, **__: None)
                compaction.compact(data, 0)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(location, "select", chosen)
        yield


def served(data: Path) -> int:
    """What all hosts served."""
    question = Question(data)
    with question.ask(question.span(), "1h", [columns.Interval]) as (engine, left_out):
        found = engine.query("SELECT CAST(SUM(served_ns) AS BIGINT) AS n FROM interval")
    assert left_out == []
    return int(found["n"][0].as_py())


@pytest.mark.parametrize("is_killed", [False, True])
def test_files_that_are_compacted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """A file that was gone ended the question; one that was also merged counted twice."""
    add(tmp_path, 1)
    compaction.compact(tmp_path, 0)
    add(tmp_path, 2)
    with compacted_after_the_choice(tmp_path, monkeypatch, is_killed=is_killed):
        assert served(tmp_path) == 2


def test_files_that_are_always_compacted_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tlstax.analysis.fleet.engines.retrying._PAUSE_S", 0)
    add(tmp_path, 1)
    add(tmp_path, 2)
    with (
        compacted_after_the_choice(tmp_path, monkeypatch, times=9),
        pytest.raises(TlstaxError, match="duckdb could not answer"),
    ):
        served(tmp_path)

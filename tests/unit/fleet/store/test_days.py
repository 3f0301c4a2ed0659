# SPDX-License-Identifier: GPL-2.0-only
"""Small hours of a day that is over become one file, and every row is counted once even so."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import columns, ranking
from tlstax.analysis.fleet.columns import DAY_NS, HOUR_NS, SECOND_NS, SHARED, TABLES, Row
from tlstax.analysis.fleet.continuous.rotation import rotate
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.metrics import BY_NAME
from tlstax.analysis.fleet.question import Question, moment
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, parquet_files, selection
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import table_name
from tlstax.tests.fleet_rows import renamed
from tlstax.tests.watched_rows import NOON_NS, Watching, by_window

LATER_NS: Final = NOON_NS + 3 * DAY_NS
DAY: Final = NOON_NS - NOON_NS % DAY_NS


def rows(data: Path, table: type[Row], tier: str = "1h", *span: int) -> list[dict[str, Any]]:
    """The rows that a question reads, in order."""
    files = selection.select(data, tier, TABLES, span or (None, None))  # type: ignore[arg-type]
    assert files.left_out == []
    found = [
        row
        for path in files.files[table]
        for group in parquet_files.groups(path)
        for row in group.to_pylist()
    ]
    return sorted(found, key=str)


@pytest.fixture
def data(demo_tables: Tables, tmp_path: Path) -> Path:
    """Five hours of a watch."""
    watching, windows = Watching(tmp_path / "data", demo_tables), by_window(demo_tables)
    for number in range(5):
        watching.take(windows[number * 10 : number * 10 + 10])
        watching.offset_ns += HOUR_NS
    watching.end()
    return tmp_path / "data"


def test_a_day_is_one_file_and_holds_the_same_rows(data: Path) -> None:
    before = {table: rows(data, table) for table in TABLES}
    size = sum(path.stat().st_size for path in data.rglob("*.parquet"))
    assert compaction.compact(data, LATER_NS).left_out == []
    folder = data / "tier=1h/table=interval"
    assert [path.parent.name for path in folder.rglob("*.parquet")] == ["hour=24"]
    assert {path.name for path in folder.glob("date=*/*")} == {"hour=24"}
    assert {table: rows(data, table) for table in TABLES} == before
    assert sum(path.stat().st_size for path in data.rglob("*.parquet")) < size / 2


def test_a_day_that_is_not_over_keeps_its_hours(data: Path) -> None:
    compaction.compact(data, DAY + DAY_NS + HOUR_NS)
    assert len(list(data.glob("tier=1h/table=interval/*/hour=24/*"))) == 0


def test_large_days_keep_their_hours(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "DAY_ROWS_MOST", 3)
    compaction.compact(data, LATER_NS)
    assert len(list(data.glob("tier=1h/table=interval/*/*/*.parquet"))) == 5


def test_a_span_inside_of_a_day_finds_its_file(data: Path) -> None:
    compaction.compact(data, LATER_NS)
    assert len(rows(data, columns.Interval, "1h", NOON_NS + HOUR_NS, NOON_NS + 2 * HOUR_NS)) == 5
    assert rows(data, columns.Interval, "1h", DAY + DAY_NS, DAY + 2 * DAY_NS) == []


def test_a_question_without_times_has_all_of_a_merged_day(data: Path) -> None:
    """The last hour that it knew of was the start of that day: 23 hours were missing."""
    metric = BY_NAME["handshake_rate"]
    hours = ranking.top(Question(data), metric, 5, "", "")
    compaction.compact(data, LATER_NS)
    assert Question(data).span() == Span(DAY, DAY + DAY_NS)
    day = ranking.top(Question(data), metric, 5, "", "")
    (before,), (after,) = hours.hosts, day.hosts
    assert after.host == before.host
    assert after.value == pytest.approx(before.value)
    assert day.findings == hours.findings


def counted(data: Path, capsys: Any, *words: str) -> dict[str, int]:
    """The rows of each table that `fleet sql` sees."""
    names = [*map(table_name, TABLES), "phase_bucket"]
    query = " UNION ALL ".join(f"SELECT '{name}' AS t, COUNT(*) AS n FROM {name}" for name in names)
    assert main(["fleet", "sql", query, "--data", str(data), "--json", "-", *words]) == 0
    return {row["t"]: row["n"] for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize("tier", ["1h", "1m"])
def test_sql_of_some_hours_has_no_other_rows_of_their_day(
    data: Path, capsys: Any, tier: str
) -> None:
    words = ["--tier", tier, "--from", moment(NOON_NS + HOUR_NS)]
    words += ["--to", moment(NOON_NS + 3 * HOUR_NS)]
    hours = counted(data, capsys, *words)
    assert hours["interval"] >= 2
    compaction.compact(data, LATER_NS)
    assert list(data.glob(f"tier={tier}/table=interval/*/hour=24/*"))
    day = counted(data, capsys, *words)
    shared = {table_name(table) for table in SHARED}
    assert {t: n for t, n in day.items() if t not in shared} == {
        t: n for t, n in hours.items() if t not in shared
    }
    everything = counted(data, capsys, "--tier", tier)
    assert all(day[table] == everything[table] for table in shared)
    assert everything["phase_bucket"] > day["phase_bucket"] > 0


def test_sql_begins_with_an_hour_and_ends_at_a_time(data: Path, capsys: Any) -> None:
    def starts(*words: str) -> list[int]:
        query = "SELECT DISTINCT start_wall_ns AS s FROM interval ORDER BY s"
        of = ["--data", str(data), "--tier", "10s", "--json", "-"]
        assert main(["fleet", "sql", query, *of, *words]) == 0
        return [row["s"] for row in json.loads(capsys.readouterr().out)]

    everything = starts()
    last = everything[-1]
    assert starts("--to", moment(last)) == everything[:-1]
    of_hour = [one for one in everything if one >= last - last % HOUR_NS]
    assert starts("--from", moment(last + 60 * SECOND_NS)) == of_hour


def test_a_merge_that_was_killed_counts_nothing_twice(data: Path, tmp_path: Path) -> None:
    before = rows(data, columns.Interval)
    compaction.compact(data, DAY + DAY_NS)  # the hours
    shutil.copytree(data, tmp_path / "hours")
    compaction.compact(data, LATER_NS)
    for path in (tmp_path / "hours").rglob(COMPACTED):
        target = data / path.relative_to(tmp_path / "hours")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    assert len(list(data.glob("tier=1h/table=interval/*/*/*"))) == 6
    assert rows(data, columns.Interval) == before
    compaction.compact(data, LATER_NS)
    assert len(list(data.glob("tier=1h/table=interval/*/*/*"))) == 1
    assert rows(data, columns.Interval) == before


def test_a_recording_in_a_merged_day_is_known_and_can_be_replaced(
    rolled: RolledUp, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    longer = rolled
    shorter = _shorter(rolled)
    other = renamed(rolled, "db2", 77)
    for one in (shorter, other, _an_hour_earlier(renamed(rolled, "db3", 78))):
        adding.add(one, data)
    compaction.compact(data, 1 << 62)
    assert len(list(data.glob("tier=1h/table=ledger/*/hour=24/*"))) == 1
    assert len(list(data.glob("tier=1h/table=ledger/*/*/*"))) == 1
    assert adding.add(other, data) == adding.KNOWN
    assert adding.add(longer, data) == adding.REPLACED
    found = rows(data, columns.Interval)
    assert [row["host"] for row in found].count("db2") == len(other.rows["1h"][columns.Interval])
    assert [row["host"] for row in found].count("db3") == 1
    mine = longer.recording.host
    recorded = sum(row["recorded_ns"] for row in found if row["host"] == mine)
    assert recorded == sum(
        row.recorded_ns
        for row in longer.rows["1h"][columns.Interval]
        if isinstance(row, columns.Interval)
    )
    assert compaction.compact(data, 1 << 62).left_out == []
    assert rows(data, columns.Interval) == found


def _an_hour_earlier(rolled: RolledUp) -> RolledUp:
    """The same in the hour before, which is of the same day."""
    made: Any = {
        tier: {
            table: [row._replace(start_wall_ns=row.start_wall_ns - HOUR_NS) for row in found]
            for table, found in tables.items()
        }
        for tier, tables in rolled.rows.items()
    }
    return rolled._replace(rows=made)


def _shorter(rolled: RolledUp) -> RolledUp:
    """The same recording, as it was earlier."""
    made = {
        tier: {
            table: [
                row._replace(recorded_ns=row.recorded_ns // 2)
                if isinstance(row, columns.Interval)
                else row
                for row in found
            ]
            for table, found in tables.items()
        }
        for tier, tables in rolled.rows.items()
    }
    return rolled._replace(rows=made)


def test_a_merged_day_is_removed_when_all_of_it_is_old(data: Path) -> None:
    compaction.compact(data, LATER_NS)
    shared = Place("1h", columns.Frame, NOON_NS).day.folder(data) / COMPACTED
    frame = columns.Frame(1, NOON_NS, "", 0, "f", "s", "")
    parquet_files.write(shared, columns.Frame, [parquet_files.table_of(columns.Frame, [frame])])
    rotate(data, "db1", DAY + DAY_NS - 1)
    assert len(rows(data, columns.Interval)) == 5
    assert shared.exists()
    rotate(data, "db1", DAY + DAY_NS)
    assert list(data.rglob("*.parquet")) == []

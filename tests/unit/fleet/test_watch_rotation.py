# SPDX-License-Identifier: GPL-2.0-only
"""What --keep removes: also from files of several hosts, and not at a start with a wrong clock."""

from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS, HOUR_NS, SHARED, TABLES, TIERS
from tlstax.analysis.fleet.continuous.rotation import rotate
from tlstax.analysis.fleet.store import compaction, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.printable import output_error
from tlstax.collectors.capture.schema import table_name
from tlstax.tests.unit.fleet.test_watch_rollups import sums
from tlstax.tests.watched_rows import NOON_NS, Watching, by_window

DAY_S = 86400.0
TWO_WEEKS_S = 14 * DAY_S


def hosts(data: Path) -> set[str]:
    """Those that any table has rows of."""
    return {
        host
        for table in TABLES
        if table not in SHARED
        for path in data.glob(f"tier=*/table={table_name(table)}/**/*.parquet")
        for rows in parquet_files.groups(path, ["host"])
        for host in rows["host"].unique().to_pylist()
    }


def two_hours(data: Path, tables: Tables, host: str) -> None:
    for at in (0, 1):
        watching = Watching(data, tables, host)
        watching.offset_ns += at * HOUR_NS
        watching.all()


@pytest.mark.parametrize("now_ns", [NOON_NS + HOUR_NS, NOON_NS + 3 * DAY_NS], ids=["hour", "day"])
def test_a_host_is_taken_out_of_the_files_of_several(
    demo_tables: Tables, tmp_path: Path, now_ns: int
) -> None:
    """As `tlstax watch --all` and `tlstax fleet compact` make them."""
    data = tmp_path / "data"
    for host in ("db1", "db2"):
        two_hours(data, demo_tables, host)
    two_hours(tmp_path / "db2-alone", demo_tables, "db2")
    shared = Place("1h", columns.Frame, NOON_NS).folder(data) / COMPACTED
    frame = columns.Frame(1, NOON_NS, "", 0, "f", "s", "")
    parquet_files.write(shared, columns.Frame, [parquet_files.table_of(columns.Frame, [frame])])
    compaction.compact(data, now_ns)
    end_ns = NOON_NS - NOON_NS % DAY_NS + DAY_NS
    assert rotate(data, "db1", end_ns) > 0
    assert hosts(data) == {"db2"}
    assert any(data.rglob("table=frame/**/*.parquet"))
    for tier in TIERS:
        assert sums(data, tier) == sums(tmp_path / "db2-alone", tier)
    assert rotate(data, "db1", end_ns) == 0
    assert rotate(data, "db2", end_ns) > 0
    assert list(data.rglob("*.parquet")) == []


def test_a_full_disk_keeps_no_file_that_needs_no_room(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: Any) -> int:
        raise output_error(str(path), OSError(28, "No space left on device"))

    for host in ("db1", "db2"):
        Watching(tmp_path, demo_tables, host).all()
    compaction.compact(tmp_path, NOON_NS + HOUR_NS)
    later = Watching(tmp_path, demo_tables)
    later.offset_ns += HOUR_NS
    later.all()
    monkeypatch.setattr(parquet_files, "write", full)
    with pytest.raises(TlstaxError, match="no space left") as told:
        rotate(tmp_path, "db1", NOON_NS + DAY_NS)
    assert told.value.exit_code == ExitCode.IO
    assert {path.name for path in tmp_path.rglob("*.parquet")} == {COMPACTED}
    assert hosts(tmp_path) == {"db1", "db2"}


def test_a_start_under_a_clock_that_is_months_ahead_removes_nothing(
    demo_tables: Tables, tmp_path: Path
) -> None:
    """Nor does the next start; what the clock says for a day is believed."""
    rows = by_window(demo_tables)

    def started(offset_ns: int) -> Watching:
        made = Watching(tmp_path, demo_tables, keep_s=TWO_WEEKS_S)
        made.offset_ns += offset_ns
        made.take(rows[:20])
        return made

    started(0).end()
    written = set(tmp_path.rglob("part-*.parquet"))
    for at in (0, 3 * HOUR_NS):
        wrong = started(5000 * HOUR_NS + at)
        assert written <= set(tmp_path.rglob("part-*.parquet"))
        assert "in case the clock is wrong, nothing is removed for a day" in wrong.said[0]
        wrong.end()
    right = started(5000 * HOUR_NS + 6 * HOUR_NS)
    right.sink._clock_set_ns -= 25 * HOUR_NS
    right.take(rows[20:])
    assert not written & set(tmp_path.rglob("part-*.parquet"))
    right.end()


def test_a_week_without_a_watch_delays_nothing(demo_tables: Tables, tmp_path: Path) -> None:
    rows = by_window(demo_tables)
    for days in (0, 10, 17):
        watching = Watching(tmp_path, demo_tables, keep_s=TWO_WEEKS_S)
        watching.offset_ns += days * DAY_NS
        watching.take(rows[:20])
        watching.end()
        assert watching.said == []
    dates = {path.name for path in tmp_path.glob("tier=1h/table=interval/date=*")}
    assert len(dates) == 2

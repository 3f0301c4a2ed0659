# SPDX-License-Identifier: GPL-2.0-only
"""Rollups of a watch: the sums of the recording, each once, whatever happens on the way."""

import dataclasses
import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, TABLES, TIERS
from tlstax.analysis.fleet.continuous.rotation import rotate
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.steps import STEP_NS
from tlstax.analysis.fleet.store import adding, compaction, layout, parquet_files, selection
from tlstax.analysis.report.live.measures import distributions
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.printable import output_error
from tlstax.collectors.capture.schema import Latency, PhaseCount, Row, Window, table_name
from tlstax.tests.fleet_rows import renamed
from tlstax.tests.watched_rows import Watching, by_window

SECOND_NS = 1_000_000_000
NOT_SUMMED = {"start_wall_ns", "source_id", "scale", "first_bucket"}
NOT_SUMMED |= {"sample_count", "record_crypto_ns", "record_observed_ns"}  # without samples
SUMMED = (
    columns.Interval, columns.Ledger, columns.Handshake, columns.PhaseLatency, columns.Loss
)  # fmt: skip


def sums(data: Path, tier: str) -> dict[str, int]:
    """Every sum of the files that a question of this tier reads."""
    files = selection.select(data, tier, TABLES)
    assert files.left_out == []
    found: dict[str, int] = defaultdict(int)
    for table in SUMMED:
        for rows in (rows for path in files.files[table] for rows in parquet_files.groups(path)):
            for column in columns.columns(table):
                values = rows[column.name].to_pylist()
                if column.kind == "list":
                    found[f"{table_name(table)}.{column.name}"] += sum(map(sum, values))
                elif column.kind == "int" and column.name not in NOT_SUMMED:
                    found[f"{table_name(table)}.{column.name}"] += sum(values)
    return dict(found)


@pytest.fixture(scope="module")
def expected(
    rolled: RolledUp, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, int]]:
    """The sums of the same recording, added as a whole."""
    data = tmp_path_factory.mktemp("whole")
    adding.add(rolled, data)
    return {tier: sums(data, tier) for tier in TIERS}


def test_sums_are_those_of_the_recording(
    demo_tables: Tables, expected: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    Watching(tmp_path / "watch", demo_tables).all()
    assert {tier: sums(tmp_path / "watch", tier) for tier in TIERS} == expected
    assert expected["1h"]["ledger.on_cpu_ns"] > SECOND_NS


def test_times_of_the_shortest_ledger_are_in_steps(
    demo_tables: Tables, rolled: RolledUp, tmp_path: Path
) -> None:
    Watching(tmp_path / "watch", demo_tables).all()
    adding.add(rolled, tmp_path / "added")
    for name in ("watch", "added"):
        (path,) = (tmp_path / name).glob("tier=10s/table=ledger/**/*.parquet")
        (found,) = parquet_files.groups(path)
        rows = found.to_pylist()
        is_last = [
            any(one[key] != other[key] for key in ("role", "phase", "source_id"))
            for one, other in itertools.pairwise(rows)
        ]
        ended = [row["on_cpu_ns"] % STEP_NS for row, last in zip(rows, is_last, strict=False)]
        assert sum(is_last) > 5
        assert not any(left for left, last in zip(ended, is_last, strict=True) if not last)
        assert any(left for left, last in zip(ended, is_last, strict=True) if last)


def test_what_rollups_do_not_have_is_told_with_what_they_have(
    demo_tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Watching(tmp_path, demo_tables).all()
    command = ["fleet", "top", "--data", str(tmp_path)]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No host was seen enough for CPUs in TLS" in said
    assert "Rank by handshake_cpus instead (--by)" in said
    assert main([*command, "--by", "handshake_cpus"]) == 0
    assert "db1 has most" in capsys.readouterr().out


def test_a_command_that_is_taken_back_lets_no_sum_fall(demo_tables: Tables, tmp_path: Path) -> None:
    """It was counted in a window that is written: the next commands are fewer."""
    watching = Watching(tmp_path / "watch", demo_tables)
    rows = by_window(demo_tables)[:3]
    wall_ns = (400_000_000_000, 410_000_000_000)  # as no other command took
    counted: list[int] = []
    for window, count in zip(rows, (1, -1, 1), strict=True):
        (number,) = (row.window_id for row in window if isinstance(row, Window))
        kept: list[Row] = [row for row in window if not isinstance(row, PhaseCount | Latency)]
        kept += [PhaseCount(number, "command", count), Latency(number, "command", *wall_ns, count)]
        watching.take([kept])
        found = {one.name: one.counts for one in distributions(watching.counters)}
        counted.append(sum(found["command_duration_seconds"].values()))
    watching.end()
    assert counted == [1, 1, 1]
    found_sums = sums(tmp_path / "watch", "10s")
    assert found_sums["interval.command_count"] == found_sums["phase_latency.counts"] == 1


def test_a_rollup_of_a_minute_has_no_shorter_tier(
    demo_tables: Tables, expected: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    Watching(tmp_path / "watch", demo_tables, every_s=60).all()
    assert not (tmp_path / "watch/tier=10s").exists()
    assert sums(tmp_path / "watch", "1m") == expected["1m"]


def test_an_hour_that_was_compacted_meanwhile_is_counted_once(
    demo_tables: Tables, expected: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    data = tmp_path / "watch"
    watching = Watching(data, demo_tables)
    rows = by_window(demo_tables)
    for part in (rows[:30], rows[30:60], rows[60:]):
        watching.take(part)
        watching.sink.detached()
        assert compaction.compact(data).left_out == []
    watching.end()
    assert {tier: sums(data, tier) for tier in TIERS} == expected
    assert watching.said == []


def test_a_killed_watch_loses_no_rollup_that_was_written(
    demo_tables: Tables, expected: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    data, rows = tmp_path / "watch", by_window(demo_tables)
    first = Watching(data, demo_tables)
    first.take(rows[:40])
    written = sums(data, "1h")
    first.kill()
    second = Watching(data, demo_tables)
    second.take(rows[40:])
    second.end()
    found = sums(data, "1h")
    lost_ns = expected["1h"]["interval.recorded_ns"] - found["interval.recorded_ns"]
    assert written["interval.recorded_ns"] <= found["interval.recorded_ns"]
    assert 0 <= lost_ns < 10 * SECOND_NS
    shortest = sums(data, "10s")
    assert shortest["ledger.on_cpu_ns"] == found["ledger.on_cpu_ns"]
    assert shortest["interval.recorded_ns"] == found["interval.recorded_ns"]


def test_a_clock_that_is_set_back_is_told_and_loses_nothing(
    demo_tables: Tables, expected: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    watching, rows = Watching(tmp_path / "watch", demo_tables), by_window(demo_tables)
    watching.take(rows[:30])
    watching.offset_ns -= 2 * HOUR_NS
    watching.take(rows[30:50])
    watching.offset_ns += 2 * HOUR_NS
    watching.take(rows[50:])
    watching.end()
    assert sums(tmp_path / "watch", "1h") == expected["1h"]
    assert ["back by 7200.0 s" in watching.said[0], "forward" in watching.said[1]] == [True, True]
    assert len({path.parent for path in tmp_path.glob("watch/tier=1h/table=host/*/*/*")}) == 2


def test_an_hour_that_ends_begins_another_file(demo_tables: Tables, tmp_path: Path) -> None:
    watching = Watching(tmp_path / "watch", demo_tables)
    middle_ns = sorted(window.start_ns for window in demo_tables.windows)[36]
    watching.offset_ns = watching.offset_ns // HOUR_NS * HOUR_NS - middle_ns % HOUR_NS
    watching.all()
    files = list(tmp_path.glob("watch/tier=1h/table=interval/*/*/part-*.parquet"))
    assert len(files) == 2
    assert watching.said == []
    served = sum(row.time_ns for row in demo_tables.ledger)
    found = sums(tmp_path / "watch", "1m")
    assert sum(value for name, value in found.items() if name.startswith("ledger.")) == served


def test_a_full_disk_is_told_once_and_loses_nothing(
    demo_tables: Tables,
    expected: dict[str, dict[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, rows = parquet_files.write, by_window(demo_tables)

    def full(path: Path, *_: Any) -> int:
        raise output_error(str(path), OSError(28, "No space left on device"))

    watching = Watching(tmp_path / "watch", demo_tables)
    watching.take(rows[:10])
    monkeypatch.setattr(parquet_files, "write", full)
    watching.take(rows[10:60])
    watching.sink.detached()
    monkeypatch.setattr(parquet_files, "write", write)
    watching.take(rows[60:])
    watching.end()
    assert sums(tmp_path / "watch", "1h") == expected["1h"]
    assert len(watching.said) == 2
    assert "no space left" in watching.said[0]
    assert "kept in memory" in watching.said[0]
    assert watching.said[1] == "rollups are written again"
    assert watching.counters.failed_count >= 1


def test_a_disk_that_stays_full_costs_the_oldest_hours_by_name(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: Any) -> int:
        raise output_error(str(path), OSError(28, "No space left on device"))

    monkeypatch.setattr(parquet_files, "write", full)
    watching, rows = Watching(tmp_path / "watch", demo_tables), by_window(demo_tables)
    for number in range(6):
        watching.take(rows[number * 10 : number * 10 + 10])
        watching.sink.detached()
        watching.offset_ns += HOUR_NS
    assert watching.counters.lost_count == 3
    lost = [line for line in watching.said if "are lost" in line]
    assert ["T12:00Z" in lost[0], "T14:00Z" in lost[2], len(lost)] == [True, True, 3]


def test_old_hours_are_removed_and_those_of_others_stay(
    demo_tables: Tables, rolled: RolledUp, tmp_path: Path
) -> None:
    data, rows = tmp_path / "watch", by_window(demo_tables)
    adding.add(renamed(rolled, "db2", 77), data)
    watching = Watching(data, demo_tables, keep_s=2 * 3600)
    watching.take(rows[:20])
    watching.end()
    later = Watching(data, demo_tables, keep_s=2 * 3600)
    later.offset_ns += 5 * HOUR_NS
    later.take(rows[20:])
    later.end()
    files = selection.select(data, "1h", TABLES).files[columns.Interval]
    hosts = [
        host
        for path in files
        for rows in parquet_files.groups(path)
        for host in rows["host"].to_pylist()
    ]
    assert sorted(hosts) == ["db1", "db2"]
    assert len(list(data.glob("tier=1h/table=ledger/*/hour=*"))) == 2


def test_a_clock_that_is_set_to_another_year_by_mistake_removes_nothing(
    demo_tables: Tables, tmp_path: Path
) -> None:
    """Set right within a day, nothing is lost; what stays so for a day is believed."""
    data, rows = tmp_path / "watch", by_window(demo_tables)
    watching = Watching(data, demo_tables, keep_s=2 * 3600)
    watching.take(rows[:20])
    written = set(data.rglob("part-*.parquet"))
    for moved_ns in (5000 * HOUR_NS, -5000 * HOUR_NS):
        watching.offset_ns += moved_ns
        watching.take(rows[20:40])
        assert written <= set(data.rglob("part-*.parquet"))
    watching.offset_ns += 5000 * HOUR_NS
    watching.take(rows[40:50])
    watching.sink._clock_set_ns -= 25 * HOUR_NS
    watching.sink._rotated_hour = 0
    watching.take(rows[50:])
    assert not written & set(data.rglob("part-*.parquet"))
    watching.end()


def test_a_file_of_a_newer_version_keeps_no_old_hour_of_ours(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a downgrade: else nothing would ever be removed again."""
    data, rows = tmp_path / "watch", by_window(demo_tables)
    watching = Watching(data, demo_tables)
    watching.take(rows)
    watching.end()
    (ours,) = data.glob("tier=1h/table=interval/*/*/part-*.parquet")
    table = parquet_files.table_of(columns.Interval, [])
    newer = ours.with_name(layout.part_name(99))
    with monkeypatch.context() as patched:
        patched.setattr(parquet_files, "SCHEMA_VERSION", columns.SCHEMA_VERSION + 1)
        parquet_files.write(newer, columns.Interval, [table])
    rotate(data, "db1", 2**62)
    assert [newer.exists(), ours.exists()] == [True, False]


def test_two_watches_of_a_host_are_refused(demo_tables: Tables, tmp_path: Path) -> None:
    first = Watching(tmp_path, demo_tables)
    with pytest.raises(TlstaxError, match="another `tlstax watch`") as refused:
        Watching(tmp_path, demo_tables)
    assert refused.value.exit_code == ExitCode.USAGE
    Watching(tmp_path, demo_tables, host="db2").end()
    first.end()


def test_what_is_kept_does_not_grow(demo_tables: Tables, tmp_path: Path) -> None:
    ended = [thread._replace(end_ns=thread.start_ns + 1) for thread in demo_tables.threads]
    tables = dataclasses.replace(demo_tables, threads=ended)
    watching, rows = Watching(tmp_path / "watch", tables), by_window(tables)
    for _ in range(3):
        watching.take(rows)
    sink = watching.sink
    assert sink._windows._threads == {}
    assert sink._segment is not None
    assert all(len(kept.interval) == 1 for kept in sink._segment._open.values())
    assert watching.counters.sums.interval.keys() == {(0,)}


def test_the_rows_of_an_hour_are_one_table(demo_tables: Tables, tmp_path: Path) -> None:
    watching, rows = Watching(tmp_path / "watch", demo_tables), by_window(demo_tables)
    watching.take(rows)
    segment = watching.sink._segment
    assert segment is not None
    assert segment._closed
    for (tier, table), closed in segment._closed.items():
        more = segment._with_closed(tier, table, [])
        assert more.num_rows == closed.num_rows > 0
        assert {column.num_chunks for column in more.columns} == {1}

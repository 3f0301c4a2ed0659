# SPDX-License-Identifier: GPL-2.0-only
"""An hour of a watch is explained from its raw windows: findings, stacks, what fired."""

import gc
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS
from tlstax.analysis.fleet.continuous import rollups
from tlstax.analysis.fleet.continuous.explained_hours import KEPT_MOST, ExplainedHours
from tlstax.analysis.fleet.continuous.raw_hour import Rows
from tlstax.analysis.fleet.continuous.triggers import Fired, Triggers
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.intervals import Sums
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.store import compaction, parquet_files
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.printable import output_error
from tlstax.tests.watched_rows import NOON_NS, Watching, by_window

FIRED = Fired("trigger-closure", 0.2, 0.0, "The ledger has 80 %.")


@pytest.fixture(scope="module")
def capture(repository: Path) -> Path:
    return repository / "docs/demo/demo.tlstax"


class Once(Triggers):
    """Fires at the first window."""

    def add(self, sums: Sums) -> list[Fired]:
        fired, self.is_over = ([] if hasattr(self, "is_over") else [FIRED]), True
        del sums
        return fired


def table(data: Path, kind: type[columns.Row]) -> list[dict[str, Any]]:
    name = kind.__name__.lower()
    return [
        row
        for path in data.glob(f"tier=1h/table={name}/*/*/*.parquet")
        for rows in parquet_files.groups(path)
        for row in rows.to_pylist()
    ]


def watched(data: Path, tables: Tables, capture: Path) -> Watching:
    """A watch of one hour, the raw windows of which are in this capture."""
    watching = Watching(data, tables)
    watching.take(by_window(tables))
    source = watching.sink.source
    watching.sink.detached()
    watching.sink.recorded(capture, source)
    return watching


def test_stacks_and_findings_are_those_of_the_capture(
    demo_tables: Tables, rolled: RolledUp, capture: Path, tmp_path: Path
) -> None:
    watched(tmp_path / "data", demo_tables, capture).sink.close()
    whole = rolled.rows["1h"]
    for kind in (columns.Stacks, columns.Finding):
        found = table(tmp_path / "data", kind)
        assert len(found) == len(whole[kind]) > 0
    times = sum(row["time_ns"] for row in table(tmp_path / "data", columns.Stacks))
    expected = [row.time_ns for row in whole[columns.Stacks] if isinstance(row, columns.Stacks)]
    assert times == sum(expected)
    (source,) = {row["source_id"] for row in table(tmp_path / "data", columns.Stacks)}
    assert source in {row["source_id"] for row in table(tmp_path / "data", columns.Interval)}
    assert {row["frame_id"] for row in table(tmp_path / "data", columns.Frame)} >= {
        frame for row in table(tmp_path / "data", columns.Stack) for frame in row["frame_ids"]
    }


def test_what_fired_is_a_finding_beside_the_others(
    demo_tables: Tables,
    rolled: RolledUp,
    capture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollups, "Triggers", Once)
    watching = watched(tmp_path / "data", demo_tables, capture)
    before = table(tmp_path / "data", columns.Finding)
    watching.sink.close()
    found = table(tmp_path / "data", columns.Finding)
    assert [row["finding"] for row in before] == ["trigger-closure"]
    assert len(found) == 1 + len(rolled.rows["1h"][columns.Finding])
    assert watching.counters.triggers["trigger-closure"] == 1
    assert watching.said[0] == "trigger-closure: The ledger has 80 %."


def test_what_an_hour_explains_joins_triggers_that_were_compacted(
    demo_tables: Tables,
    rolled: RolledUp,
    capture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollups, "Triggers", Once)
    watching = watched(tmp_path / "data", demo_tables, capture)
    assert compaction.compact(tmp_path / "data").left_out == []
    watching.sink.close()
    assert compaction.compact(tmp_path / "data").left_out == []
    found = table(tmp_path / "data", columns.Finding)
    assert len(found) == 1 + len(rolled.rows["1h"][columns.Finding])


def test_a_full_disk_delays_what_an_hour_explains(
    demo_tables: Tables, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: Any) -> int:
        raise output_error(str(path), OSError(28, "No space left on device"))

    watching = watched(tmp_path / "data", demo_tables, capture)
    write = parquet_files.write
    monkeypatch.setattr(parquet_files, "write", full)
    hours = watching.sink._explained
    deadline = time.monotonic() + 60
    while not watching.said and time.monotonic() < deadline:
        hours.take()
        time.sleep(0.05)
    monkeypatch.setattr(parquet_files, "write", write)
    watching.sink.close()
    assert "findings are kept in memory" in watching.said[0]
    assert table(tmp_path / "data", columns.Stacks)


def test_raw_windows_that_cannot_be_read_are_told(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no.tlstax").write_bytes(b"no capture")
    watching = watched(tmp_path / "data", demo_tables, tmp_path / "no.tlstax")
    watching.sink.close()
    assert "could not be explained" in watching.said[0]
    assert table(tmp_path / "data", columns.Stacks) == []
    assert table(tmp_path / "data", columns.Interval)
    assert watching.counters.unexplained_count == 1


def test_what_is_lost_is_told_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise output_error("it", OSError(28, "No space left on device"))

    said: list[str] = []
    lost: list[int] = []
    hours = ExplainedHours(tmp_path, said.append, lambda: lost.append(1))
    monkeypatch.setattr(hours, "_write", full)
    monkeypatch.setattr(hours, "_set_aside", full)
    for number in range(KEPT_MOST + 2):
        of = SimpleNamespace(source_id=number, host="db1")
        segment: Any = SimpleNamespace(of=of, hour_ns=number, fired=[FIRED])
        hours.expect(segment)
    assert set(hours._fired) == set(hours._awaited)
    hours.take()
    assert "findings are kept in memory" in said[0]
    assert (said[1], len(lost)) == ("findings of 2 hours could not be written and are lost", 2)
    hours.ask(tmp_path / "old.tlstax", 0)
    assert "later hours came first" in said[2]
    hours.close(0.0)
    assert len(lost) == 2 + 1 + KEPT_MOST


def test_an_hour_is_not_explained_where_no_process_can_be_started(
    demo_tables: Tables, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("tlstax.analysis.fleet.continuous.raw_hour.subprocess.Popen", refused)
    watching = watched(tmp_path / "data", demo_tables, capture)
    watching.sink.close()
    assert "could not be explained (Resource temporarily unavailable)" in watching.said[0]
    assert watching.counters.unexplained_count == 1


def test_the_stacks_of_a_day_are_written_once_and_take_few_bytes(tmp_path: Path) -> None:
    """A watch knows them until midnight; as integers of Python each took 84 bytes."""
    many, hour_ns = 20_000, NOON_NS
    hours = ExplainedHours(tmp_path, lambda _: None, lambda: None)
    made: list[tuple[Recording, Rows]] = [
        (
            Recording("db1", "", number + 1, 0),
            {columns.Stack: [columns.Stack(id_, hour_ns, [id_]) for id_ in of]},
        )
        for number, of in enumerate((range(many), range(many // 2, 2 * many), range(many)))
    ]
    memory = pyarrow.default_memory_pool()
    hours._write(*made[0])  # what is loaded for the first time is not counted
    hours = ExplainedHours(tmp_path, lambda _: None, lambda: None)
    tracemalloc.start()
    try:
        arrow_bytes, python_bytes = memory.bytes_allocated(), tracemalloc.get_traced_memory()[0]
        for one in made:
            hours._write(*one)
        gc.collect()
        grown = memory.bytes_allocated() - arrow_bytes
        grown += tracemalloc.get_traced_memory()[0] - python_bytes
    finally:
        tracemalloc.stop()
    assert grown < 12 * 2 * many
    assert sorted(row["stack_id"] for row in table(tmp_path, columns.Stack)) == [*range(2 * many)]
    (later,) = (row for row in made[2][1][columns.Stack] if row[0] == 7)
    hours._write(made[2][0], {columns.Stack: [later._replace(start_wall_ns=hour_ns + DAY_NS)]})
    found = [row["stack_id"] for row in table(tmp_path, columns.Stack)]
    assert found.count(7) == 2  # another day has rows of its own

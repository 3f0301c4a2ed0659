# SPDX-License-Identifier: GPL-2.0-only
"""How files are packed."""

import itertools
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, Row
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, packing, parquet_files
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet


def written(profile: RolledUp, data: Path, table: type[Row], hosts: int = 30) -> Path:
    """A compacted hour of replayed hosts."""
    fleet_writer.write(Fleet(hosts, [profile]), data, "10s", 1, (table,), START_NS + 12 * HOUR_NS)
    (found,) = data.rglob("*.parquet")
    return found


_READING = """
import os, sys
from pathlib import Path
from tlstax.analysis.fleet.store import parquet_files
parquet_files.arrow("pyarrow.parquet")
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
assert sum(rows.num_rows for rows in parquet_files.groups(Path(sys.argv[1]))) > 0
print(threads() - before)
"""


def test_reading_begins_no_thread(rolled: RolledUp, tmp_path: Path) -> None:
    """Threads of pyarrow's pool aborted one command in some dozens when it ended."""
    adding.add(rolled, tmp_path)
    (path,) = tmp_path.glob("tier=1h/table=interval/*/*/*.parquet")
    done = subprocess.run(
        [sys.executable, "-c", _READING, str(path)], stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"0\n"


def test_row_groups_keep_their_hosts(
    profile: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "ROWS_OF_A_GROUP", 20_000)
    path = written(profile, tmp_path, columns.Ledger)
    bounds = parquet_files.bounds(path, columns.Ledger)
    assert len(bounds) > 5
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(bounds))


def test_where_lists_begin_is_compressed(
    profile: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = columns.PhaseLatency
    first = written(profile, tmp_path / "first", table).stat().st_size
    plain = packing.options(table, packing.FINAL_LEVEL)
    plain["data_page_version"] = "2.0"
    monkeypatch.setattr(packing, "options", lambda table, level: plain)
    assert first < 0.97 * written(profile, tmp_path / "second", table).stat().st_size


def test_large_merged_files_cost_less_cpu_time() -> None:
    small = packing.ROWS_OF_A_GROUP
    of_ledger, of_latencies = (
        [packing.merged_level(table, rows) for rows in (small, small + 1)]
        for table in (columns.Ledger, columns.PhaseLatency)
    )
    assert of_ledger == [packing.FINAL_LEVEL, 15]
    assert of_latencies == [packing.FINAL_LEVEL, packing.LIVE_LEVEL]


def phases_of(path: Path) -> list[tuple[str, str]]:
    """The first and the last phase of each row group, by its statistics."""
    footer = parquet_files.check(path, columns.PhaseLatency)
    place = footer.schema.to_arrow_schema().get_field_index("phase")
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    found = [group.column(place).statistics for group in groups]
    return [(known.min, known.max) for known in found]


def test_whole_handshakes_have_row_groups_of_their_own(
    profile: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, others = ("handshake_wall",) * 2, ("command",) * 2
    path = written(profile, tmp_path / "one", columns.PhaseLatency)
    assert phases_of(path) == [whole, others]
    monkeypatch.setattr(packing, "rows_of_a_group", lambda table: 6_000)
    halves = written(profile, tmp_path / "two", columns.PhaseLatency)
    assert phases_of(halves) == [whole, whole, others, others]
    first, second = (
        parquet_files.in_order(columns.PhaseLatency, pa.concat_tables(parquet_files.groups(one)))
        for one in (path, halves)
    )
    assert first.equals(second)
    assert first.num_rows == 30 * 360 * 2


def test_few_rows_have_one_row_group(profile: RolledUp, tmp_path: Path) -> None:
    path = written(profile, tmp_path, columns.PhaseLatency, hosts=5)
    assert phases_of(path) == [("command", "handshake_wall")]


def test_what_is_asked_for_by_host_has_smaller_row_groups() -> None:
    rows = {table: packing.rows_of_a_group(table) for table in columns.TABLES}
    small = {table for table, most in rows.items() if most < packing.ROWS_OF_A_GROUP}
    assert small == {columns.Ledger, columns.PhaseLatency}


def encodings(path: Path, table: type[Row]) -> dict[str, set[str]]:
    """How the numbers of a file are encoded that are no names, by column."""
    group = parquet_files.check(path, table).row_group(0)
    found = [group.column(number) for number in range(group.num_columns)]
    return {
        column.path_in_schema: {one for one in column.encodings if one != "RLE"}
        for column in found
        if column.physical_type == "INT64" and "PLAIN" not in column.encodings
    }


def test_numbers_of_intervals_are_packed_differences(profile: RolledUp, tmp_path: Path) -> None:
    """Every question reads most of them, and engines decode differences in half the CPU time."""
    found = {
        table: encodings(written(profile, tmp_path / table.__name__, table), table)
        for table in (columns.Interval, columns.Ledger)
    }
    for table, encoding in (
        (columns.Interval, "DELTA_BINARY_PACKED"),
        (columns.Ledger, "BYTE_STREAM_SPLIT"),
    ):
        assert len(found[table]) > 5
        assert all(known == {encoding} for known in found[table].values())

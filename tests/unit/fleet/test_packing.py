# SPDX-License-Identifier: GPL-2.0-only
"""How files are packed."""

import itertools
from pathlib import Path

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, Row
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import packing, parquet_files
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet


def written(profile: RolledUp, data: Path, table: type[Row], hosts: int = 30) -> Path:
    """A compacted hour of replayed hosts."""
    fleet_writer.write(Fleet(hosts, [profile]), data, "10s", 1, (table,), START_NS + 12 * HOUR_NS)
    (found,) = data.rglob("*.parquet")
    return found


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

# SPDX-License-Identifier: GPL-2.0-only
"""Files that are back after they were merged: equal, longer, shorter, damaged, of several hours."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet.columns import TIERS
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction
from tlstax.analysis.fleet.store.layout import COMPACTED, part_name
from tlstax.tests.fleet_rows import later, renamed, totals
from tlstax.tests.unit.fleet.store.test_replacing import damage

EVER = 1 << 62
"""A time at which every day is over."""


def counted(data: Path) -> dict[str, Any]:
    """What may not change. Frames that only a shorter copy needed stay, and are not counted."""
    found = {tier: totals(data, tier) for tier in TIERS}
    for of_tier in found.values():
        of_tier.pop("frames")
    return found


def both(first: RolledUp, second: RolledUp) -> RolledUp:
    """A recording of two hours."""
    rows = {
        tier: {table: [*rows, *second.rows[tier][table]] for table, rows in of.items()}
        for tier, of in first.rows.items()
    }
    return RolledUp(first.recording, rows)


def merged(data: Path, *recordings: RolledUp, is_day: bool) -> Path:
    """A data set in which they are in compacted files alone."""
    for one in recordings:
        adding.add(one, data)
    compaction.compact(data, EVER if is_day else 0)
    assert {path.name for path in data.rglob("*.parquet")} == {COMPACTED}
    assert any(data.rglob("hour=24/*")) == is_day
    return data


def copy(rolled: RolledUp, data: Path, under: str = "*") -> None:
    """Copy its files as they are in the folder that it was recorded to."""
    origin = data.with_name(f"origin-of-{data.name}")
    shutil.rmtree(origin, ignore_errors=True)
    adding.add(rolled, origin)
    for path in origin.rglob(f"{under}/part-*.parquet"):
        target = data / path.relative_to(origin)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


@pytest.mark.parametrize("is_day", [False, True])
def test_a_longer_copy_takes_the_place_of_what_was_merged(
    rolled: RolledUp, half: RolledUp, tmp_path: Path, is_day: bool
) -> None:
    others = [renamed(rolled, "db0", 2), later(renamed(rolled, "db2", 3), 1)]
    expected = counted(merged(tmp_path / "whole", rolled, *others, is_day=is_day))
    data = merged(tmp_path / "data", half, *others, is_day=is_day)
    before = counted(data)
    copy(rolled, data)
    assert counted(data) == before, "until then it has what it had"
    assert compaction.compact(data, EVER if is_day else 0).left_out == []
    assert counted(data) == expected
    assert {path.name for path in data.rglob("*.parquet")} == {COMPACTED}


@pytest.mark.parametrize("is_day", [False, True])
@pytest.mark.parametrize("is_shorter", [False, True])
def test_an_equal_or_shorter_copy_changes_no_file(
    rolled: RolledUp, half: RolledUp, tmp_path: Path, is_shorter: bool, is_day: bool
) -> None:
    data = merged(tmp_path / "data", rolled, later(renamed(rolled, "db2", 3), 1), is_day=is_day)
    before = counted(data)
    kept = {path: path.stat().st_mtime_ns for path in data.rglob("table=ledger/**/*.parquet")}
    copy(half if is_shorter else rolled, data)
    compaction.compact(data, EVER if is_day else 0)
    assert counted(data) == before
    found = {path: path.stat().st_mtime_ns for path in data.rglob("table=ledger/**/*.parquet")}
    assert found == kept


@pytest.mark.parametrize("is_day", [False, True])
def test_a_longer_copy_that_is_damaged_takes_no_place(
    rolled: RolledUp, half: RolledUp, tmp_path: Path, is_day: bool
) -> None:
    data = merged(tmp_path / "data", half, later(renamed(rolled, "db2", 3), 1), is_day=is_day)
    before = counted(data)
    copy(rolled, data)
    for path in data.rglob(part_name(rolled.recording.source_id)):
        damage(path)
    damaged = compaction.compact(data, EVER if is_day else 0).left_out
    assert any("table=ledger" in line and "it is damaged" in line for line in damaged)
    for path in data.rglob(part_name(rolled.recording.source_id)):
        path.unlink()
    assert counted(data) == before


@pytest.mark.parametrize("is_small", [False, True])
def test_one_hour_of_a_merged_day_is_replaced_and_the_others_stay(
    rolled: RolledUp,
    half: RolledUp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_small: bool,
) -> None:
    """Also where the day has become too large to take that hour back."""
    whole = both(rolled, later(rolled, 1))
    expected = counted(merged(tmp_path / "whole", whole, is_day=True))
    data = merged(tmp_path / "data", both(rolled, later(half, 1)), is_day=True)
    if not is_small:
        monkeypatch.setattr(compaction, "DAY_ROWS_MOST", 1)
    copy(whole, data, "hour=08")
    assert compaction.compact(data, EVER).left_out == []
    assert counted(data) == expected
    folders = {path.name for path in (data / "tier=1h/table=ledger").glob("*/*")}
    assert folders == ({"hour=24"} if is_small else {"hour=08", "hour=24"})

# SPDX-License-Identifier: GPL-2.0-only
"""docs/rollout.md: its commands exist, and folders of hosts become one set by copying."""

import shlex
import shutil
from pathlib import Path

import pytest

from tlstax.__main__ import build_parser
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS, HOUR_NS, TABLES, TIERS
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, parquet_files, selection
from tlstax.analysis.fleet.store.layout import COMPACTED
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.fleet_rows import renamed
from tlstax.tests.unit.fleet.test_watch_rollups import sums
from tlstax.tests.watched_rows import NOON_NS, Watching, by_window


def commands(page: str) -> list[list[str]]:
    """Those of tlstax in indented blocks, as a shell divides them."""
    lines = [line.strip() for line in page.splitlines() if line.startswith("    tlstax ")]
    return [shlex.split(line.replace('"$(pidof mysqld)"', "1"), comments=True) for line in lines]


def test_every_command_of_the_page_exists(repository: Path) -> None:
    found = commands((repository / "docs/rollout.md").read_text())
    assert len(found) > 7
    for _, name, *rest in found:
        build_parser(name).parse_args([name, *rest])
    with pytest.raises(SystemExit):
        build_parser("watch").parse_args(["watch", "--everything"])


def shakes(data: Path) -> dict[str, int]:
    """Handshakes by host that questions count."""
    files = selection.select(data, "1h", TABLES)
    assert files.left_out == []
    found: dict[str, int] = {}
    for path in files.files[columns.Interval]:
        for rows in parquet_files.groups(path):
            for row in rows.to_pylist():
                found[row["host"]] = found.get(row["host"], 0) + row["handshake_count"]
    return found


def collect(host: Path, fleet: Path) -> None:
    """As the two calls of rsync do: what questions start from comes last."""
    left = shutil.ignore_patterns("table=interval", "raw")
    before = shakes(fleet) if fleet.exists() else {}
    shutil.copytree(host, fleet, ignore=left, dirs_exist_ok=True)
    assert shakes(fleet) == before, "half of a copy is not counted"
    shutil.copytree(host, fleet, ignore=shutil.ignore_patterns("raw"), dirs_exist_ok=True)


def test_folders_of_hosts_are_one_set_when_they_are_copied(
    rolled: RolledUp, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet"
    adding.add(rolled, tmp_path / "db1")
    one = shakes(tmp_path / "db1")["db1"]
    assert one > 0
    for host in ("db1", "db2"):
        adding.add(rolled if host == "db1" else renamed(rolled, host, 2), tmp_path / host)
        collect(tmp_path / host, fleet)
    assert shakes(fleet) == {"db1": one, "db2": one}
    compaction.compact(fleet)
    assert shakes(fleet) == {"db1": one, "db2": one}
    collect(tmp_path / "db1", fleet)
    assert shakes(fleet) == {"db1": one, "db2": one}, "what is copied again counts once"
    compaction.compact(fleet)
    assert shakes(fleet) == {"db1": one, "db2": one}


@pytest.mark.parametrize("now_ns", [NOON_NS + HOUR_NS, NOON_NS + 3 * DAY_NS], ids=["hour", "day"])
def test_an_hour_that_was_merged_while_it_ran_has_its_end_once_it_is_copied_again(
    demo_tables: Tables, tmp_path: Path, now_ns: int
) -> None:
    fleet, rows = tmp_path / "fleet", by_window(demo_tables)
    for at in (0, 1):  # another host, in an hour before, too
        other = Watching(tmp_path / "db2", demo_tables, "db2")
        other.offset_ns -= at * HOUR_NS
        other.all()
    mine = Watching(tmp_path / "db1", demo_tables)
    for part in (rows[:30], rows[30:50], rows[50:]):
        mine.take(part)
        if part == rows[50:]:
            mine.end()
        for host in ("db1", "db2"):
            collect(tmp_path / host, fleet)
        assert compaction.compact(fleet, now_ns).left_out == []
        assert {path.name for path in fleet.rglob("*.parquet")} == {COMPACTED}
    for host in ("db1", "db2"):
        collect(tmp_path / host, tmp_path / "never-merged")
    for tier in TIERS:
        assert sums(fleet, tier) == sums(tmp_path / "never-merged", tier)

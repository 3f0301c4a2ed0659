# SPDX-License-Identifier: GPL-2.0-only
"""docs/rollout.md: its commands exist, and folders of hosts become one set by copying."""

import shlex
import shutil
from pathlib import Path

import pytest

from tlstax.__main__ import build_parser
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TABLES
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, parquet_files, selection
from tlstax.tests.fleet_rows import renamed


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


def test_folders_of_hosts_are_one_set_when_they_are_copied(
    rolled: RolledUp, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet"
    adding.add(rolled, tmp_path / "db1")
    one = shakes(tmp_path / "db1")["db1"]
    assert one > 0

    def collect(host: str) -> None:
        """As the two calls of rsync do: what questions start from comes last."""
        left = shutil.ignore_patterns("table=interval", "raw")
        before = shakes(fleet) if fleet.exists() else {}
        shutil.copytree(tmp_path / host, fleet, ignore=left, dirs_exist_ok=True)
        assert shakes(fleet) == before, "half of a copy is not counted"
        left = shutil.ignore_patterns("raw")
        shutil.copytree(tmp_path / host, fleet, ignore=left, dirs_exist_ok=True)

    for host in ("db1", "db2"):
        adding.add(rolled if host == "db1" else renamed(rolled, host, 2), tmp_path / host)
        collect(host)
    assert shakes(fleet) == {"db1": one, "db2": one}
    compaction.compact(fleet)
    assert shakes(fleet) == {"db1": one, "db2": one}
    collect("db1")
    assert shakes(fleet) == {"db1": one, "db2": one}, "what is copied again counts once"
    compaction.compact(fleet)
    assert shakes(fleet) == {"db1": one, "db2": one}

# SPDX-License-Identifier: GPL-2.0-only
"""What --keep removes of hosts that a watch of the same folder had once, under other names."""

import os
import shutil
from pathlib import Path

import pytest

from tlstax.__main__ import build_parser
from tlstax.analysis.fleet.columns import DAY_NS, HOUR_NS
from tlstax.analysis.fleet.continuous import former_hosts
from tlstax.analysis.fleet.store import compaction, layout
from tlstax.analysis.report.commands.watch_sinks import Sinks
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.commands import watch
from tlstax.tests.unit.fleet.test_watch_rotation import TWO_WEEKS_S, hosts
from tlstax.tests.watched_rows import NOON_NS, Watching, by_window, facts

LATER_NS = 20 * DAY_NS


def watched(data: Path, tables: Tables, host: str, at_ns: int = 0) -> Watching:
    made = Watching(data, tables, host, keep_s=TWO_WEEKS_S)
    made.offset_ns += at_ns
    made.take(by_window(tables)[:20])
    return made


def later(data: Path, tables: Tables) -> Watching:
    """A watch of another host for some days, whose hour then changes."""
    watched(data, tables, "h-b", LATER_NS - 2 * DAY_NS).end()
    watching = watched(data, tables, "h-b", LATER_NS)
    watching.offset_ns += HOUR_NS
    watching.take(by_window(tables)[20:])
    return watching


def test_a_host_that_is_not_watched_any_more_goes(demo_tables: Tables, tmp_path: Path) -> None:
    watched(tmp_path, demo_tables, "h-a").end()
    assert hosts(tmp_path) == {"h-a"}
    watching = later(tmp_path, demo_tables)
    assert hosts(tmp_path) == {"h-b"}
    assert "removed h-a: not watched any more, and older than --keep" in watching.said
    watching.end()
    with layout.former(tmp_path) as found:
        assert found.keys() == {"h-b"}
    watched(tmp_path, demo_tables, "h-a", LATER_NS).end()
    assert hosts(tmp_path) == {"h-a", "h-b"}


def test_a_host_of_a_file_of_several_goes(demo_tables: Tables, tmp_path: Path) -> None:
    for host in ("h-a", "h-c"):
        watched(tmp_path, demo_tables, host).end()
    compaction.compact(tmp_path, NOON_NS + 3 * DAY_NS)
    later(tmp_path, demo_tables).end()
    assert hosts(tmp_path) == {"h-b"}


@pytest.mark.parametrize("why", ["watched", "added", "copied", "recent"])
def test_other_hosts_stay(demo_tables: Tables, tmp_path: Path, why: str) -> None:
    """One that is watched now, one without a lock of a watch here, and one with newer hours."""
    data = tmp_path / "data"
    mine = watched(data, demo_tables, "h-a")
    held = None
    if why != "watched":
        mine.end()
    else:
        mine.sink._end_segment()
        mine.sink._write()
        held = mine
    (lock,) = data.glob(".lock-watch-*")
    if why == "added":
        lock.unlink()
    if why == "copied":
        shutil.copytree(data, tmp_path / "copy")
        data = tmp_path / "copy"
    if why == "recent":
        watched(data, demo_tables, "h-a", LATER_NS - 10 * DAY_NS).end()
    before = set(data.rglob("part-*.parquet"))
    later(data, demo_tables).end()
    assert before <= set(data.rglob("part-*.parquet"))
    assert hosts(data) == {"h-a", "h-b"}
    if held:
        held.kill()


def test_a_watch_without_older_hours_waits_a_day(demo_tables: Tables, tmp_path: Path) -> None:
    """Its clock may be wrong, and nothing of its own tells."""
    watched(tmp_path, demo_tables, "h-a").end()
    watching = watched(tmp_path, demo_tables, "h-b", LATER_NS)
    watching.offset_ns += HOUR_NS
    watching.take(by_window(demo_tables)[20:30])
    assert hosts(tmp_path) == {"h-a", "h-b"}
    watching.sink._former_from_ns -= DAY_NS
    watching.offset_ns += HOUR_NS
    watching.take(by_window(demo_tables)[30:])
    assert hosts(tmp_path) == {"h-b"}
    watching.end()


def test_a_name_is_known_until_its_raw_windows_are_gone(
    demo_tables: Tables, tmp_path: Path
) -> None:
    watched(tmp_path, demo_tables, "h-a").end()
    asked: list[tuple[str, int]] = []

    def remove_raw(host: str, end_wall_ns: int) -> bool:
        asked.append((host, end_wall_ns))
        return len(asked) > 1

    end_ns = NOON_NS + LATER_NS
    found = [former_hosts.remove(tmp_path, end_ns, remove_raw) for _ in range(3)]
    assert found == [[], ["h-a"], []]
    assert asked == [("h-a", end_ns)] * 2


def test_the_command_removes_raw_windows_of_former_hosts(
    demo_tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the arguments to the files, as nothing but the command connects the two."""
    raw = tmp_path / "raw" / watch.raw_folder("h-a")
    (raw / "kept").mkdir(parents=True)
    for folder in (raw, raw / "kept"):
        (folder / f"20260101T000000Z-{1:016x}.tlstax").touch()
    watched(tmp_path, demo_tables, "h-a").end()
    watched(tmp_path, demo_tables, "h-b", LATER_NS - 2 * DAY_NS).end()
    words = ["watch", "--name", "x", "--host", "h-b", "--output", str(tmp_path), "--keep", "14d"]
    sinks = Sinks(tmp_path, "", 60, TWO_WEEKS_S, "", are_several=False)
    outlet = watch._outlet(build_parser("watch").parse_args(words), sinks, "")
    offset_ns = NOON_NS + LATER_NS - min(one.start_ns for one in demo_tables.windows)
    sink = outlet._sink
    monkeypatch.setattr(sink, "_wall_offset_ns", lambda: offset_ns)
    sink.begin(facts(demo_tables))
    for rows in by_window(demo_tables)[:5]:
        sink.window(rows)
    assert hosts(tmp_path) == {"h-b"}
    assert not raw.exists()
    outlet.close()


def test_a_lock_file_of_an_earlier_version_says_nothing(tmp_path: Path) -> None:
    os.close(layout.claim(tmp_path, "h-a"))
    (lock,) = tmp_path.glob(".lock-watch-*")
    for text in (b"", b"h-a", b"1 h-a", b"\xff \xff", f"{lock.stat().st_ino} h-x".encode()):
        lock.write_bytes(text)
        with layout.former(tmp_path) as found:
            assert found == {}

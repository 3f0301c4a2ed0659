# SPDX-License-Identifier: GPL-2.0-only
"""Raw windows of a watch are captures of what its rollups count: both together count it once."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.unit.fleet.test_watch_rollups import sums
from tlstax.tests.watched_rows import Watching, by_window

LAST = 20
"""Windows of the capture that a copy of it lacks."""


@pytest.fixture
def watching(demo_tables: Tables, tmp_path: Path) -> Watching:
    made = Watching(tmp_path / "watch", demo_tables)
    meta = demo_tables.meta
    made.offset_ns = int(meta["created_wall_ns"]) - int(meta["monotonic_anchor_ns"])
    return made


def raw(watching: Watching, source: int, less: int = 0, **names: str) -> RolledUp:
    """Its raw windows, as `tlstax fleet add` reads them."""
    meta = {
        "hostname": "vm", "watch_host": "db1", "watch_cluster": "eu", "watch_source": str(source)
    }  # fmt: skip
    windows = sorted(watching.tables.windows, key=lambda window: window.start_ns)
    tables = dataclasses.replace(
        watching.tables,
        meta=watching.tables.meta | meta,
        windows=windows[: len(windows) - less],
    )
    return capture.roll_up(tables, "raw.tlstax", **names)


def watched(watching: Watching) -> int:
    """Its source, after it has taken all."""
    watching.take(by_window(watching.tables))
    source = watching.sink.source
    watching.end()
    return source


@pytest.mark.parametrize("is_compacted", [False, True])
def test_beside_the_rollups_they_change_no_sum(
    watching: Watching, tmp_path: Path, is_compacted: bool
) -> None:
    data, rolled = tmp_path / "watch", raw(watching, watched(watching))
    before = sums(data, "1h")
    if is_compacted:
        compaction.compact(data)
    assert adding.add(rolled, data) == adding.KNOWN
    assert sums(data, "1h") == before
    assert (rolled.recording.host, rolled.recording.cluster) == ("db1", "eu")


def test_rollups_that_are_copied_over_them_take_their_place(
    watching: Watching, tmp_path: Path
) -> None:
    """As docs/rollout.md collects the folders of hosts."""
    rolled = raw(watching, watched(watching))
    assert adding.add(rolled, tmp_path / "fleet") == adding.ADDED
    shutil.copytree(tmp_path / "watch", tmp_path / "fleet", dirs_exist_ok=True)
    found, alone = (sums(tmp_path / name, "1m") for name in ("fleet", "watch"))
    assert found == alone


def test_a_window_that_no_rollup_has_yet_replaces_nothing(
    watching: Watching, tmp_path: Path
) -> None:
    """The watch writes its files again within a minute."""
    watching.take(by_window(watching.tables)[:-1])
    rolled = raw(watching, watching.sink.source)
    watching.end()
    before = sums(tmp_path / "watch", "1h")
    assert adding.add(rolled, tmp_path / "watch") == adding.KNOWN
    assert sums(tmp_path / "watch", "1h") == before


def test_a_longer_copy_replaces_a_shorter_one(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "_ROLLUP_NS", SECOND_NS)
    data, source = tmp_path / "fleet", watched(watching)
    whole = raw(watching, source)
    assert adding.add(raw(watching, source, LAST), data) == adding.ADDED
    assert adding.add(whole, data) == adding.REPLACED
    adding.add(whole, tmp_path / "whole")
    assert sums(data, "1h") == sums(tmp_path / "whole", "1h")


def test_another_name_is_another_host(watching: Watching) -> None:
    source = watched(watching)
    mine, other = raw(watching, source), raw(watching, source, host="db2", cluster="us")
    assert (other.recording.host, other.recording.cluster) == ("db2", "us")
    assert other.recording.source_id != mine.recording.source_id == source


@pytest.mark.parametrize("source", [0, 1 << 63])
def test_a_source_that_no_watch_has_is_damage(watching: Watching, source: int) -> None:
    with pytest.raises(TlstaxError, match="is damaged") as refused:
        raw(watching, source)
    assert refused.value.exit_code == ExitCode.CAPTURE

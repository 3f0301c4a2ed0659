# SPDX-License-Identifier: GPL-2.0-only
"""Sums of the data set are those of the capture, and hostile captures are refused in words."""

import dataclasses
import shutil
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.composition import count_samples
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TIERS, Row
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.intervals import MAIN_PHASES, WALL
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Window
from tlstax.collectors.capture.vocabulary import CONNECTION_ROLES
from tlstax.tests.level_tables import with_signatures

MS = 1_000_000


def total(rolled: RolledUp, tier: str, table: type[Row], name: str) -> int:
    return sum(getattr(row, name) for row in rolled.rows[tier][table])


@pytest.mark.parametrize("tier", TIERS)
def test_no_time_of_the_ledger_is_lost(rolled: RolledUp, demo_tables: Tables, tier: str) -> None:
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in rolled.rows[tier][columns.Ledger]:
        assert isinstance(row, columns.Ledger)
        for name, value in row._asdict().items():
            if name.endswith("_ns") and name != "start_wall_ns" and value:
                found[row.phase, name.removesuffix("_ns")] += value
    expected: dict[tuple[str, str], int] = defaultdict(int)
    for line in demo_tables.ledger:
        if line.time_ns:
            expected[line.phase, line.state] += line.time_ns
    assert found == expected


def test_only_the_shortest_tier_merges_roles(rolled: RolledUp, demo_tables: Tables) -> None:
    roles = {thread.role for thread in demo_tables.threads}
    found = {
        tier: {row.role for row in rolled.rows[tier][columns.Ledger]}  # type: ignore[union-attr]
        for tier in TIERS
    }
    assert found["1m"] == found["1h"] <= roles
    assert found["10s"] <= {*CONNECTION_ROLES, "background"}


@pytest.mark.parametrize("tier", TIERS)
def test_counts_and_handshakes_are_those_of_the_capture(
    rolled: RolledUp, demo_tables: Tables, tier: str
) -> None:
    walls = sum(row.end_ns - row.start_ns for row in demo_tables.handshakes)
    assert total(rolled, tier, columns.Handshake, "wall_ns") == walls
    assert total(rolled, tier, columns.Interval, "handshake_count") == len(demo_tables.handshakes)
    buckets = sum(
        sum(row.counts)
        for row in rolled.rows[tier][columns.PhaseLatency]
        if isinstance(row, columns.PhaseLatency) and row.phase != WALL
    )
    phases = {row.phase for row in demo_tables.latencies} if tier == "1h" else MAIN_PHASES
    latencies = [row for row in demo_tables.latencies if row.phase in phases]
    assert buckets == sum(row.ended_count for row in latencies)
    served = sum(row.time_ns for row in demo_tables.ledger if row.phase in SERVED_PHASES)
    assert total(rolled, tier, columns.Interval, "served_ns") == served


def test_stacks_split_the_ledger_and_lead_to_frames(rolled: RolledUp, demo_tables: Tables) -> None:
    rows = [row for row in rolled.rows["1h"][columns.Stacks] if isinstance(row, columns.Stacks)]
    served = sum(row.time_ns for row in demo_tables.ledger if row.phase in SERVED_PHASES)
    assert sum(row.time_ns for row in rows) == pytest.approx(served, abs=len(rows))
    stacks = {row.stack_id: row for row in rolled.rows["1h"][columns.Stack]}  # type: ignore[union-attr]
    frames = {row.frame_id: row for row in rolled.rows["1h"][columns.Frame]}  # type: ignore[union-attr]
    named = {one for row in rows for one in (row.user_stack_id, row.kernel_stack_id)} - {0}
    assert named == stacks.keys()
    assert {one for row in stacks.values() for one in row.frame_ids} == frames.keys()  # type: ignore[union-attr]
    kernel = [row for row in frames.values() if row.object == "kernel"]  # type: ignore[union-attr]
    assert kernel
    assert all(not row.build_id and not row.offset_bytes for row in kernel)  # type: ignore[union-attr]


def test_time_that_nobody_looked_at_is_recorded_and_not_observed(demo_tables: Tables) -> None:
    windows = [
        window._replace(level="none" if window.window_id % 4 else window.level)
        for window in demo_tables.windows
    ]
    budget = dataclasses.replace(demo_tables, windows=windows)
    (row,) = capture.roll_up(budget, "x").rows["1h"][columns.Interval]
    assert isinstance(row, columns.Interval)
    seen = sum(w.end_ns - w.start_ns for w in windows if w.level != "none")
    assert row.recorded_ns == sum(w.end_ns - w.start_ns for w in windows)
    assert row.ledger_observed_ns == row.handshake_observed_ns == seen


def test_operations_that_nobody_saw_do_not_make_the_others_shorter(demo_tables: Tables) -> None:
    tables = with_signatures(demo_tables)
    shakes, windows = tables.handshakes, tables.windows
    unseen = {window.window_id for window in windows if window.level == "signature"}
    rolled = capture.roll_up(tables, "x").rows["1h"]
    served = [row for row in shakes if row.outcome == "success" and row.side != "client"]
    rows = [row for row in rolled[columns.Handshake] if isinstance(row, columns.Handshake)]
    assert sum(row.partial_count for row in rows) == sum(row.verify_ns < 0 for row in served) > 0
    assert sum(row.verify_ns for row in rows) == sum(max(0, row.verify_ns) for row in served) > 0
    (interval,) = rolled[columns.Interval]
    assert isinstance(interval, columns.Interval)
    unseen_ns = sum(one.end_ns - one.start_ns for one in windows if one.window_id in unseen)
    assert interval.partial_ns == unseen_ns
    assert interval.handshake_observed_ns > unseen_ns


def test_late_windows_belong_to_the_hour_in_which_they_began(demo_tables: Tables) -> None:
    first = min(window.start_ns for window in demo_tables.windows)
    hour = 3600 * 1_000_000_000
    extra = Window(10_000, None, first + hour, first + hour + 500 * MS, 1, "full")
    longer = dataclasses.replace(demo_tables, windows=[*demo_tables.windows, extra])
    rows = capture.roll_up(longer, "x").rows["1h"][columns.Interval]
    assert len({row.start_wall_ns for row in rows}) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"meta": {}}, "does not say when it was recorded"),
        ({"meta": {"created_wall_ns": "x", "monotonic_anchor_ns": "1"}}, "does not say when"),
        (
            {"meta": {"created_wall_ns": "9" * 30, "monotonic_anchor_ns": "1", "hostname": "a"}},
            "times of its windows",
        ),
        ({"windows": []}, "no window"),
        ({"windows": [Window(1, None, 0, 1 << 62, 1, "full")]}, "times of its windows"),
        ({"windows": [Window(1, None, 10, 5, 1, "full")]}, "times of its windows"),
    ],
)
def test_a_hostile_capture_is_refused(
    demo_tables: Tables, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(TlstaxError, match=said) as refused:
        capture.roll_up(dataclasses.replace(demo_tables, **change), "bad.tlstax")
    assert refused.value.exit_code == ExitCode.CAPTURE


@pytest.mark.parametrize("time_ns", [1 << 62, -5])
def test_sums_beyond_a_recording_are_refused(demo_tables: Tables, time_ns: int) -> None:
    first = demo_tables.ledger[0]._replace(time_ns=time_ns, phase="sign", state="runnable")
    with pytest.raises(TlstaxError, match="beyond what a recording can hold"):
        capture.roll_up(dataclasses.replace(demo_tables, ledger=[first]), "bad.tlstax")


@pytest.mark.parametrize("name", ["a\x1b[31m", "x" * 300, "back\\slash"])
def test_a_name_that_could_steer_a_terminal_is_refused(demo_tables: Tables, name: str) -> None:
    with pytest.raises(TlstaxError, match="--host") as refused:
        capture.roll_up(demo_tables, "x", host=name)
    assert refused.value.exit_code == ExitCode.USAGE


def test_a_damaged_file_is_refused_as_by_a_report(demo: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tlstax"
    shutil.copyfile(demo, bad)
    with sqlite3.connect(bad) as connection:
        connection.execute("UPDATE ledger SET phase = 'no such phase' WHERE rowid = 7")
    with pytest.raises(TlstaxError, match="there is no phase"):
        capture.read(bad)


@pytest.mark.parametrize("level", ["command", "record"])
def test_records_count_as_observed_only_where_they_are_boundaries(
    demo_tables: Tables, level: str
) -> None:
    windows = [window._replace(level=level) for window in demo_tables.windows]
    changed = dataclasses.replace(demo_tables, windows=windows)
    (row,) = capture.roll_up(changed, "x").rows["1h"][columns.Interval]
    assert isinstance(row, columns.Interval)
    assert row.record_observed_ns == (row.recorded_ns if level == "record" else 0)
    unsplit = dataclasses.replace(changed, samples=[])
    (row,) = capture.roll_up(unsplit, "x").rows["1h"][columns.Interval]
    assert isinstance(row, columns.Interval)
    # Without samples nobody knows what part of the time was encryption.
    assert row.record_observed_ns == 0


def test_samples_are_counted_once(demo_tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long capture that is half of the time."""
    calls = []

    def counting(*arguments: Any) -> Any:
        calls.append(1)
        return count_samples(*arguments)

    monkeypatch.setattr(capture, "count_samples", counting)
    capture.roll_up(demo_tables, "demo.tlstax", "db1")
    assert len(calls) == 1


def test_without_names_nothing_is_known_of_records(demo_tables: Tables) -> None:
    """As of a recording that was killed before its functions were named."""
    frames = [row._replace(symbol="[x+0x1]", source="none") for row in demo_tables.frames]
    unnamed = dataclasses.replace(demo_tables, frames=frames)
    made = capture.roll_up(unnamed, "demo.tlstax", host="db1")
    whole = capture.roll_up(demo_tables, "demo.tlstax", host="db1")
    for name in ("record_observed_ns", "record_crypto_ns"):
        assert total(whole, "1h", columns.Interval, name) > 0
        assert total(made, "1h", columns.Interval, name) == 0
    for rolled in (whole, made):
        assert total(rolled, "1h", columns.Ledger, "on_cpu_ns") > 0

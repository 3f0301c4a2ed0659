# SPDX-License-Identifier: GPL-2.0-only
"""Record crypto of level flow, by samples: against the same recording with boundaries."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TIERS
from tlstax.analysis.fleet.continuous.interval_records import added_records
from tlstax.analysis.fleet.rollup import capture, record_split
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.store import adding
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.level_tables import as_flow
from tlstax.tests.watched_rows import Watching, by_window

TOLERANCE = 0.25
"""Samples alone see too much of sends: docs/decisions/0044-findings-at-level-flow.md."""


@pytest.fixture(scope="module")
def at_flow(demo_tables: Tables) -> Tables:
    return as_flow(demo_tables)


@pytest.fixture(scope="module")
def split(at_flow: Tables) -> RolledUp:
    return capture.roll_up(at_flow, "demo.tlstax", host="db1")


@pytest.fixture(scope="module")
def too_few(at_flow: Tables) -> RolledUp:
    samples = at_flow.samples[: record_split.LEAST_SAMPLES // 10]
    samples = [row._replace(sample_count=1) for row in samples]
    return capture.roll_up(dataclasses.replace(at_flow, samples=samples), "demo.tlstax", host="db1")


def total(rolled: RolledUp, tier: str, name: str) -> int:
    return sum(getattr(row, name) for row in rolled.rows[tier][columns.Interval])


@pytest.mark.parametrize("tier", TIERS)
def test_the_estimate_is_about_what_boundaries_tell(
    split: RolledUp, rolled: RolledUp, tier: str
) -> None:
    exact, found = (total(one, tier, "record_crypto_ns") for one in (rolled, split))
    assert exact > 0
    assert abs(found / exact - 1) < TOLERANCE, (found, exact)
    assert total(split, tier, "record_observed_ns") == total(split, tier, "recorded_ns")


def test_what_stands_behind_it_is_told(split: RolledUp, rolled: RolledUp) -> None:
    (row,) = split.rows["1h"][columns.RecordSplit]
    assert isinstance(row, columns.RecordSplit)
    assert row.low_ns < row.record_crypto_ns < row.high_ns < row.command_cpu_ns
    assert row.sample_count > row.record_sample_count > 0
    assert abs(row.record_crypto_ns - total(split, "1h", "record_crypto_ns")) < 1000
    assert rolled.rows["1h"][columns.RecordSplit] == [], "it was split at boundaries"


def test_too_few_samples_give_no_estimate(too_few: RolledUp) -> None:
    assert too_few.rows["1h"][columns.RecordSplit] == []
    assert total(too_few, "1h", "record_observed_ns") == 0


def top(data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    assert main(["fleet", "top", "--data", str(data), "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["fleet", "top", "--data", str(data)]) == 0
    return document, capsys.readouterr().out


def test_top_ranks_by_it_and_says_that_it_is_an_estimate(
    split: RolledUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adding.add(split, tmp_path)
    document, printed = top(tmp_path, capsys)
    (line,) = document["hosts"]
    assert line["low"] < line["value"] < line["high"]
    assert "estimated by CPU samples" in printed


def test_top_says_nothing_of_estimates_where_boundaries_were_probed(
    rolled: RolledUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adding.add(rolled, tmp_path)
    document, printed = top(tmp_path, capsys)
    assert (document["hosts"][0]["low"], document["hosts"][0]["high"]) == (None, None)
    assert "estimated" not in printed


def test_top_says_what_is_missing(
    too_few: RolledUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adding.add(too_few, tmp_path)
    document, _ = top(tmp_path, capsys)
    assert document["hosts"] == []
    assert "1,000" in document["sentence"]


def watched(data: Path, tables: Tables) -> tuple[Recording, Any]:
    """The rollups of a watch, and what the raw windows of its hour explain."""
    watch = Watching(data, tables)
    watch.take(by_window(tables))
    of = Recording("db1", "", watch.sink.source, watch.offset_ns)
    watch.end()
    return of, capture.explained(tables, of)


def test_an_hour_of_a_watch_gets_it_when_it_is_explained(
    at_flow: Tables, split: RolledUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of, made = watched(tmp_path, at_flow)
    document, _ = top(tmp_path, capsys)
    assert document["hosts"] == [], "functions have no names yet"
    assert added_records([tmp_path], tmp_path, of, made[columns.Interval])
    assert added_records([tmp_path], tmp_path, of, made[columns.Interval]), "again, after a failure"
    query = "SELECT SUM(record_crypto_ns) AS n, SUM(recorded_ns) AS r FROM interval"
    for tier in TIERS:
        words = ["fleet", "sql", query, "--data", str(tmp_path), "--tier", tier, "--json", "-"]
        assert main(words) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert int(found["n"]) == total(split, tier, "record_crypto_ns")
        assert int(found["r"]) == total(split, tier, "recorded_ns")


def test_an_hour_that_was_compacted_is_left_alone(at_flow: Tables, tmp_path: Path) -> None:
    of, made = watched(tmp_path, at_flow)
    assert main(["fleet", "compact", "--data", str(tmp_path)]) == 0
    assert not added_records([tmp_path], tmp_path, of, made[columns.Interval])

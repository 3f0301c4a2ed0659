# SPDX-License-Identifier: GPL-2.0-only
"""How `make bench-fleet` judges: sizes and planted changes fail it, times are marked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import Row
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.collectors.capture.schema import table_name
from tlstax.tests.bench import fleet, fleet_aims

TOP = "rank by CPUs in TLS"
Run = Callable[..., int]


def spent(seconds: float, question: str = TOP) -> dict[str, float]:
    return {question: seconds, question + fleet_aims.WALL: seconds / 2}


def test_each_size_above_its_aim_is_a_sentence() -> None:
    most = {"10s": 2000.0, "1m": 500.0, "1h": 9e9}
    assert fleet_aims.failures(most, {}) == []
    assert fleet_aims.failures({**most, "1m": 501}, {}) == [
        "tier 1m: 501 KB for each host and day, above 500 KB"
    ]
    assert fleet_aims.failures({**most, "1m": 501, "10s": 2400}, {})[1] == (
        "tier 10s: 2,400 KB for each host and day, above 2,000 KB"
    )


def test_each_planted_change_that_is_not_found_is_a_sentence() -> None:
    found = {100: "yes", 10_000: "2 hosts for sign_ns"}
    assert fleet_aims.failures({"10s": 1, "1m": 1}, found) == [
        "planted changes among 10,000 hosts: 2 hosts for sign_ns"
    ]


@pytest.mark.parametrize(
    ("tier", "question", "most_s"),
    [("1h", TOP, 0.5), ("1m", TOP, 3.0), ("1h", fleet_aims.LATENCIES, 1.0)],
)
def test_a_time_above_its_aim_is_marked(tier: str, question: str, most_s: float) -> None:
    kept, slow = spent(most_s, question), spent(most_s + 0.1, question)
    assert fleet_aims.missed(tier, {100: kept}) == []
    (sentence,) = fleet_aims.missed(tier, {100: slow})
    assert sentence == (
        f"tier {tier}, 100 hosts, {question}: {most_s + 0.1:.2f} s of CPU time, above {most_s} s"
    )
    assert fleet_aims.cell(tier, question, kept) == f"{most_s:.2f} ({most_s / 2:.2f})"
    assert fleet_aims.cell(tier, question, slow).endswith(") **missed**")


def test_the_whole_command_has_no_aim() -> None:
    assert fleet_aims.missed("1h", {100: spent(60, fleet_aims.COMMAND)}) == []


def test_growth_above_that_of_the_hosts_is_marked() -> None:
    times = {100: spent(0.01), 1000: spent(0.1), 3000: spent(0.31)}
    (sentence,) = fleet_aims.missed("1m", times)
    assert sentence == f"tier 1m, 1,000 to 3,000 hosts, {TOP}: 3.1 times as long, more than linear"
    assert fleet_aims.growth_cell(TOP, times) == "10.0, 3.1 **missed**"
    assert fleet_aims.growth_cell(TOP, {100: spent(1)}) == ""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The benchmark with these measurements: its exit status."""

    def measured(size_kb: float, seconds: float, verdict: str = "yes") -> int:
        def speed(
            _profiles: Any, _scratch: Path, _tier: str, count: int, found: dict[int, str]
        ) -> dict[str, float]:
            found[count] = verdict
            return spent(seconds * count)

        monkeypatch.setattr(fleet, "size_of", lambda *_: {"interval": size_kb})
        monkeypatch.setattr(fleet, "speed", speed)
        page = tmp_path / "page"
        monkeypatch.setattr("sys.argv", ["fleet", str(page), "--hosts", "100", "1000"])
        status = fleet.main()
        assert page.read_text() in capsys.readouterr().out
        return status

    return measured


def test_only_what_is_no_time_fails_the_benchmark(run: Run) -> None:
    assert run(499, 0.001) == 0
    assert run(501, 0.001) == 1
    assert run(499, 0.001, "1 hosts for sign_ns") == 1
    assert run(499, 60) == 0, "a time"


def test_the_sizes_are_those_of_all_tables_but_one(
    profile: RolledUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings, estimates, stacks and frames were left out."""
    monkeypatch.setattr(fleet, "SIZE_HOSTS", 10)
    line = columns.Finding("", 0, 0, "no-pooling", "all", 0.4, 2e6, "It takes 40 % of the time")
    hourly: dict[type[Row], list[Row]] = {**profile.rows["1h"], columns.Finding: [line]}
    with_one = RolledUp(profile.recording, {**profile.rows, "1h": hourly})

    def sizes(*profiles: RolledUp) -> dict[str, float]:
        return fleet.size_of(profiles, tmp_path, "1h")

    found = sizes(with_one)
    names = {table_name(table) for table in columns.TABLES if table is not columns.ClientNet}
    assert {name for name, size_kb in found.items() if size_kb > 0} == names
    assert sizes(profile)["finding"] == 0
    twice = sizes(with_one, with_one)
    assert twice["frame"] == found["frame"], "hosts share it"
    assert fleet.size_of([with_one], tmp_path, "1m").keys() == {
        *("interval", "ledger", "handshake", "phase_latency", "loss")
    }

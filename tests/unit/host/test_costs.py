# SPDX-License-Identifier: GPL-2.0-only
"""Prices of probes: intervals, what placements take from them, and where they are kept."""

import json
import time
from pathlib import Path

import pytest

from tlstax.collectors.capture.order_statistics import LEAST_UNITS, median_ranks
from tlstax.collectors.host import costs
from tlstax.collectors.host.calibration import ROUNDS_BASIC, price_of
from tlstax.collectors.host.costs import FRESH_S, load, save
from tlstax.collectors.host.prices import HostCosts, Price, Prices, host_costs_of

MULTI = (
    Price("uprobe_multi", "nop", 400.0, 390.0, 410.0, 25),
    Price("uretprobe_multi", "nop", 650.0, 640.0, 660.0, 25),
    Price("uprobe_multi", "mov %rdi,%rax", 14_000.0, 13_000.0, 15_000.0, 25),
)
EVENT = tuple(row._replace(kind=row.kind.removesuffix("_multi")) for row in MULTI)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tlstax" / "calibration.json"


@pytest.mark.parametrize(("count", "rank"), [(8, 1), (9, 2), (15, 4), (25, 8)])
def test_the_interval_of_a_median_holds_without_assumptions(count: int, rank: int) -> None:
    assert median_ranks(count)[0] == rank


def test_a_price_is_the_median_of_its_rounds() -> None:
    price = price_of("uprobe", "nop", [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0])
    assert price[:3] == ("uprobe", "nop", 5.0)
    assert 2.0 < price.low_ns < 3.0 < 7.0 < price.high_ns < 8.0
    assert price_of("uprobe", "nop", [1.0, 3.0, 2.0])[3:] == (1.0, 3.0, 3), "their range"


def test_what_attaching_measures_has_an_interval() -> None:
    """A capture keeps these bounds as those of a 95 % interval, which seven rounds do not have."""
    assert ROUNDS_BASIC >= LEAST_UNITS


def test_one_multi_link_is_preferred_to_perf_events() -> None:
    expensive = tuple(row._replace(cost_ns=row.cost_ns * 2) for row in EVENT)
    assert host_costs_of(MULTI + expensive, []).prices == Prices(400.0, 14_000.0, 250.0)
    assert host_costs_of(expensive, []).prices == Prices(800.0, 28_000.0, 500.0)


def test_without_a_measurement_the_defaults_hold_and_say_so() -> None:
    assert host_costs_of(MULTI[:2], []) == HostCosts(rows=MULTI[:2])
    assert not host_costs_of([], []).measured


def test_what_was_measured_is_kept_for_this_kernel_and_a_week(cache: Path) -> None:
    kernel = host_costs_of(MULTI, ["nop of 5"])
    assert load() is None
    save(kernel)
    assert load() == kernel
    content = json.loads(cache.read_text())
    for change in ({"time_s": time.time() - FRESH_S - 1}, {"host": "another"}, {"rows": [1]}):
        cache.write_text(json.dumps(content | change))
        assert load() is None
    cache.write_text("{")
    assert load() is None


def test_a_place_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tlstax").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save(host_costs_of(MULTI, []))
    assert load() is None


def test_the_place_is_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/srv/somebody")
    assert costs.path() == Path("/srv/somebody/.cache/tlstax/calibration.json")

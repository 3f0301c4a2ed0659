# SPDX-License-Identifier: GPL-2.0-only
"""Prices of probes: intervals, what placements take from them, and where they are kept."""

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tlstax.collectors.capture.order_statistics import LEAST_UNITS, median_ranks
from tlstax.collectors.host.probe_costs import costs
from tlstax.collectors.host.probe_costs.costs import (
    FRESH_PART_S,
    FRESH_S,
    load,
    path_of,
    prices_in,
    save,
    this_host_costs,
)
from tlstax.collectors.host.probe_costs.prices import (
    HostCosts,
    Price,
    Prices,
    host_costs_of,
    price_of,
)

MULTI = (
    Price("uprobe_multi", "nop", 400.0, 390.0, 410.0, 25),
    Price("uretprobe_multi", "nop", 650.0, 640.0, 660.0, 25),
    Price("uprobe_multi", "mov %rdi,%rax", 14_000.0, 13_000.0, 15_000.0, 25),
)
ROUNDS = Path(__file__).resolve().parents[3] / "collectors/recorder/price_rounds.c"
EVENT = tuple(row._replace(kind=row.kind.removesuffix("_multi")) for row in MULTI)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tlstax" / "prices.json"


def on(cpus_count: int, factor: float, rows: tuple[Price, ...] = MULTI) -> tuple[Price, ...]:
    """The prices on so many CPUs at once."""
    return tuple(row._replace(cost_ns=row.cost_ns * factor, cpus_count=cpus_count) for row in rows)


@pytest.mark.parametrize(("count", "rank"), [(8, 1), (9, 2), (15, 4), (25, 8)])
def test_the_interval_of_a_median_holds_without_assumptions(count: int, rank: int) -> None:
    assert median_ranks(count)[0] == rank


def test_a_price_is_the_median_of_its_rounds() -> None:
    price = price_of("uprobe", "nop", [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0])
    assert price[:3] == ("uprobe", "nop", 5.0)
    assert 2.0 < price.low_ns < 3.0 < 7.0 < price.high_ns < 8.0
    assert price_of("uprobe", "nop", [1.0, 3.0, 2.0])[3:] == (1.0, 3.0, 3, 1), "their range"


def test_what_attaching_measures_has_an_interval() -> None:
    """A capture keeps these bounds as those of a 95 % interval, which seven rounds do not have."""
    found = re.search(r"ROUNDS = (\d+),", ROUNDS.read_text())
    assert found
    assert int(found[1]) >= LEAST_UNITS


def test_one_multi_link_is_preferred_to_perf_events() -> None:
    expensive = tuple(row._replace(cost_ns=row.cost_ns * 2) for row in EVENT)
    assert host_costs_of(MULTI + expensive, []).prices == Prices(400.0, 14_000.0, 250.0)
    assert host_costs_of(expensive, []).prices == Prices(800.0, 28_000.0, 500.0)


def test_without_a_measurement_the_defaults_hold_and_say_so() -> None:
    assert host_costs_of(MULTI[:2], []) == HostCosts(rows=MULTI[:2])
    assert not host_costs_of([], []).measured


@pytest.mark.parametrize(
    ("cpus_count", "measured_on", "factor"),
    [(1, 1, 1.0), (2, 2, 2.0), (3, 6, 3.0), (6, 6, 3.0), (64, 6, 3.0)],
)
def test_a_hit_has_the_price_at_the_cpus_of_the_process(
    cpus_count: int, measured_on: int, factor: float
) -> None:
    """Between two numbers that were measured it is the price at the larger one."""
    costs = host_costs_of((*MULTI, *on(6, 3.0), *on(2, 2.0)), ["nop of 5"])
    assert costs.prices == Prices(400.0, 14_000.0, 250.0), "probes are placed by those on one CPU"
    there = costs.on(cpus_count)
    assert there.cpus_count == measured_on
    assert there.prices == Prices(400.0 * factor, 14_000.0 * factor, 250.0 * factor)
    assert (there.rows, there.emulated, there.measured) == (costs.rows, costs.emulated, True)


def test_a_number_of_cpus_without_all_kinds_is_not_used() -> None:
    costs = host_costs_of((*MULTI, *on(4, 3.0)[:2]), [])
    assert costs.on(4).cpus_count == 1
    assert HostCosts().on(4) == HostCosts()


def test_the_recorder_s_lines_are_prices() -> None:
    text = (
        "uprobe_multi emulated 1 5.0 1.0 9.0 3.0 7.0 2.0 8.0 4.0 6.0\n"
        "uretprobe_multi emulated 2 650.5\nuprobe stepped 2 -1.0\n"
    )
    first, second, third = prices_in(text)
    assert first == price_of("uprobe_multi", "nop", [float(n) for n in range(1, 10)])
    assert second == Price("uretprobe_multi", "nop", 650.5, 650.5, 650.5, 1, 2)
    assert third[:3] == ("uprobe", "mov %rdi,%rax", -1.0)


@pytest.mark.parametrize(
    "text",
    [
        "uprobe emulated 1",
        "uprobe emulated",
        "kprobe emulated 1 5.0",
        "uprobe nop 1 5.0",
        "uprobe emulated 0 5.0",
        "uprobe emulated 99999999 5.0",
        "uprobe emulated 1 nan",
        "uprobe emulated 1 inf",
        "uprobe emulated 1 1e30",
        "uprobe emulated 1 5.0\n" * 101,
    ],
)
def test_lines_that_no_recorder_writes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        prices_in(text)


@pytest.fixture
def recorder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorder that is a shell script; the kernel emulates one form more."""
    path = cache.with_name("recorder")
    path.parent.mkdir()
    monkeypatch.setattr(costs, "recorder_path", lambda: path)
    trial = SimpleNamespace(ask=lambda: frozenset({"nop of 5"}))
    monkeypatch.setattr(costs, "HOST", SimpleNamespace(emulated_forms=trial))
    return path


def answer_with(recorder: Path, script: str) -> None:
    recorder.write_text(f"#!/bin/sh\necho >> {recorder}.asked\n{script}\n")
    recorder.chmod(0o700)


LINES = "\n".join(
    f"{kind} 1 {' '.join([cost] * 9)}"
    for kind, cost in (
        ("uprobe_multi emulated", "400"),
        ("uretprobe_multi emulated", "650"),
        ("uprobe_multi stepped", "14000"),
    )
)


def test_a_host_is_measured_once_and_nothing_is_told(cache: Path, recorder: Path) -> None:
    answer_with(recorder, f"cat <<END\n{LINES}\nEND")
    told: list[str] = []
    for _ in range(2):
        found = this_host_costs(told.append)
        assert found.prices == Prices(400.0, 14_000.0, 250.0)
        assert found.measured
    assert told == []
    assert Path(f"{recorder}.asked").read_text() == "\n"
    assert cache.exists()


@pytest.mark.parametrize(
    ("script", "why", "tries"),
    [
        (
            f"echo '{costs._SAID}Not permitted' >&2; false",
            "Not permitted",
            2,
        ),
        ("exit 9", "its recorder ended with status 9", 2),
        ("exec sleep 9", "its recorder took longer than 0 s", 2),
        (f"cat <<END\n{LINES.rpartition(chr(10))[0]}\nEND", "a kind of probe is missing", 1),
        ("printf '\\377\\n'", "its recorder sent what no recorder sends", 1),
    ],
)
def test_why_the_costs_of_another_machine_are_used_is_told(
    cache: Path, recorder: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str, tries: int
) -> None:
    monkeypatch.setattr(costs, "_PATIENCE_S", 0.3)
    answer_with(recorder, script)
    told: list[str] = []
    assert this_host_costs(told.append) == HostCosts(emulated=frozenset({"nop of 5"}))
    (note,) = told
    assert note.startswith(f"what a probe hit costs was not measured on this host ({why}")
    assert note.endswith("plan and budget use the costs of another machine")
    assert Path(f"{recorder}.asked").read_text() == "\n" * tries
    assert not cache.exists(), "a failure is not kept"


def test_what_the_recorder_says_before_its_reason_is_left_out() -> None:
    source = (ROUNDS.parent / "prices.c").read_text()
    assert f'"{costs._SAID.removeprefix("tlstax-recorder: ")}%s"' in source


def test_a_missing_recorder_is_told(cache: Path, recorder: Path) -> None:
    told: list[str] = []
    assert not this_host_costs(told.append).measured
    assert "(its recorder cannot be run: No such file" in told[0]


def test_what_was_measured_is_kept_for_this_kernel_and_a_week(cache: Path) -> None:
    kernel = host_costs_of((*MULTI, *on(2, 2.0)), ["nop of 5"])
    assert load(cache, "this") is None
    save(cache, "this", kernel, 2)
    assert load(cache, "this") == kernel
    content = json.loads(cache.read_text())
    for change in ({"time_s": time.time() - FRESH_S - 1}, {"host": "another"}, {"rows": [1]}):
        cache.write_text(json.dumps(content | change))
        assert load(cache, "this") is None
    for damaged in ("{", "[" * 100_000):
        cache.write_text(damaged)
        assert load(cache, "this") is None


def test_a_measurement_without_all_cpus_is_soon_repeated(cache: Path) -> None:
    """A CPU was too busy; it would be missing for a week."""
    save(cache, "this", host_costs_of((*MULTI, *on(2, 2.0)), []), 4)
    assert load(cache, "this") is not None
    content = json.loads(cache.read_text())
    cache.write_text(json.dumps(content | {"time_s": time.time() - FRESH_PART_S - 1}))
    assert load(cache, "this") is None


def test_other_hosts_have_files_of_their_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "HOSTS_MOST", 2)
    places = [path_of(f"db{number}\n6.1") for number in range(4)]
    assert len({cache, *places}) == 5
    for place in places:
        save(place, "x", host_costs_of(MULTI, []), 1)
    path_of("db5")
    assert len(list(places[0].parent.iterdir())) == 2


def test_a_place_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tlstax").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save(costs.path(), "this", host_costs_of(MULTI, []), 1)
    assert load(costs.path(), "this") is None


def test_the_place_is_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/srv/somebody")
    assert costs.path() == Path("/srv/somebody/.cache/tlstax/prices.json")

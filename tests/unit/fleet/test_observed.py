# SPDX-License-Identifier: GPL-2.0-only
"""Hosts that were watched part of the time, or at other levels, are not ranked by that."""

from pathlib import Path
from typing import Any

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import columns, host_sums, metrics, peers, profiles, ranking
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS
from tlstax.analysis.fleet.engines.duckdb_engine import DuckDb
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.fleet.store.layout import Place, part_name
from tlstax.analysis.model.fleet import FleetTop
from tlstax.tests.fleet_replay import START_NS

SPAN = Span(START_NS, START_NS + HOUR_NS)
STEP_NS = 60 * SECOND_NS


def interval(number: int, host: str = "db1", **changed: int) -> columns.Interval:
    """A minute in which 100 handshakes took 100 ms of CPU time, half of it to sign."""
    seen = {
        "recorded_ns": STEP_NS,
        "ledger_observed_ns": STEP_NS,
        "handshake_observed_ns": STEP_NS,
        "record_observed_ns": STEP_NS,
        "served_ns": 10 * SECOND_NS,
        "on_cpu_ns": 5 * SECOND_NS,
        "handshake_cpu_ns": 100_000_000,
        "sign_cpu_ns": 50_000_000,
        "record_crypto_ns": 200_000_000,
        "connection_count": 100,
        "command_count": 1000,
        "handshake_count": 100,
        "full_count": 100,
        **changed,
    }
    keys = {"host": host, "start_wall_ns": START_NS + number * STEP_NS, "source_id": 1}
    rest = dict.fromkeys(columns.Interval._fields, 0)
    return columns.Interval(**{**rest, **keys, **seen})  # type: ignore[arg-type]


def only_handshakes(number: int, host: str = "db1") -> columns.Interval:
    """A minute of the same load at the level `handshake`: no ledger."""
    nothing = ("ledger_observed_ns", "record_observed_ns", "served_ns", "on_cpu_ns")
    no_sums = ("handshake_cpu_ns", "sign_cpu_ns", "record_crypto_ns", "command_count")
    changed = dict.fromkeys((*nothing, *no_sums, "connection_count"), 0)
    return interval(number, host=host, **changed)


def facts(host: str, source_id: int = 1, first_s: int = 0, **changed: Any) -> columns.Host:
    known = {
        **dict.fromkeys(columns.Host._fields, ""),
        "host": host,
        "start_wall_ns": START_NS,
        "source_id": source_id,
        "cpu_count": 4,
        "first_wall_ns": START_NS + first_s * SECOND_NS,
        **changed,
    }
    return columns.Host(**known)


def store(
    data: Path, tier: str, table: type[columns.Row], rows: list[Any], at_ns: int = START_NS
) -> None:
    path = Place(tier, table, at_ns).folder(data) / part_name(1)
    parquet_files.write(path, table, [parquet_files.table_of(table, rows)])


def ask(data: Path, rows: list[columns.Interval], metric: str) -> dict[str, float]:
    hosts = sorted({row.host for row in rows})
    store(data, "1m", columns.Interval, rows)
    store(data, "1h", columns.Host, [facts(host) for host in hosts])
    store(data, "1h", columns.Interval, rows[:1])
    found: FleetTop = ranking.top(
        Question(data, tier="1m"), metrics.of_name(metric), len(hosts), "", ""
    )
    return {line.host: line.value for line in found.hosts}


@pytest.mark.parametrize(("metric", "value"), [("sign_ns", 5e5), ("handshake_cpu_ns", 1e6)])
def test_handshakes_without_a_ledger_do_not_make_a_signature_cheaper(
    tmp_path: Path, metric: str, value: float
) -> None:
    rows = [interval(0), only_handshakes(1), interval(2), only_handshakes(3)]
    assert ask(tmp_path, rows, metric) == pytest.approx({"db1": value})


@pytest.mark.parametrize(("metric", "value"), [("tls_cpus", 0.005), ("record_crypto_ns", 2e5)])
def test_a_host_whose_records_nobody_saw_is_not_cheap(
    tmp_path: Path, metric: str, value: float
) -> None:
    # db2 was recorded at the level `command`, which does not know of records.
    unseen = [interval(n, "db2", record_observed_ns=0, record_crypto_ns=0) for n in range(3)]
    mixed = [interval(0, "db3"), interval(1, "db3", record_observed_ns=0, record_crypto_ns=0)]
    found = ask(tmp_path, [interval(0), *unseen, *mixed], metric)
    assert found == pytest.approx({"db1": value, "db3": value})


def test_latencies_count_by_the_time_in_which_their_phase_was_seen(tmp_path: Path) -> None:
    """Half of a minute at level signature, a quarter with a ledger."""
    row = interval(0, ledger_observed_ns=STEP_NS // 4, partial_ns=STEP_NS // 2)
    phases = {"sign": 4, "derive": 2, "verify": 2, "handshake_wall": 4, "command": 1}
    latencies = [
        columns.PhaseLatency("db1", row.start_wall_ns, 1, phase, 8, 2, 40, [8]) for phase in phases
    ]
    store(tmp_path, "1m", columns.Interval, [row])
    store(tmp_path, "1m", columns.PhaseLatency, latencies)
    question = Question(tmp_path, tier="1m")
    with question.ask(SPAN, "1m", [columns.Interval, columns.PhaseLatency]) as (engine, _):
        found = engine.query("SELECT phase, observed_ns FROM phase_bucket").to_pylist()
    seen = {line["phase"]: 4 * line["observed_ns"] // STEP_NS for line in found}
    assert seen == phases


def test_a_few_handshakes_that_stand_for_many_are_still_few(tmp_path: Path) -> None:
    # One handshake in a hundredth of the time stands for a hundred; 20 of them say something.
    seldom = {"ledger_observed_ns": STEP_NS // 100, "handshake_observed_ns": STEP_NS // 100}
    few = [interval(n, "few", handshake_count=1, full_count=1, **seldom) for n in range(5)]
    many = [interval(n, "many", handshake_count=1, full_count=1, **seldom) for n in range(20)]
    assert ask(tmp_path, [*few, *many], "sign_ns").keys() == {"many"}


def test_phases_of_a_host_count_by_recorded_time(tmp_path: Path) -> None:
    # A recorder with a budget looks less while the server is busy: its busy minute was seen for a
    # tenth, its quiet minute whole.
    rows = [interval(0), interval(1, ledger_observed_ns=STEP_NS // 10)]
    ledger = [
        columns.Ledger("db1", row.start_wall_ns, 1, "connection", "sign", ns, 0, 0, 0, 0, 0, 0)
        for row, ns in zip(rows, (SECOND_NS, SECOND_NS), strict=True)
    ]
    store(tmp_path, "1m", columns.Interval, rows)
    store(tmp_path, "1m", columns.Ledger, ledger)
    store(tmp_path, "1h", columns.Host, [facts("db1")])
    found = peers.explain(Question(tmp_path, tier="1m", end_wall_ns=SPAN.end_wall_ns,
                                   start_wall_ns=START_NS), "db1")  # fmt: skip
    (line,) = found.phases
    assert line.on_cpu_ns == pytest.approx((1 + 10) / 120 * 1e9)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([interval(0, "db2")], "no interval of it lies in this span"),
        (
            [
                interval(0, "db2"),
                only_handshakes(0)._replace(handshake_observed_ns=0, handshake_count=0),
            ],
            "too little of it",
        ),
        ([interval(0)], "no other host has values here (0 other hosts)"),
    ],
)
def test_a_host_without_values_is_not_like_its_peers(
    tmp_path: Path, rows: list[columns.Interval], says: str
) -> None:
    """It was "db1 is like its peers", with a table of dashes."""
    store(tmp_path, "1m", columns.Interval, rows)
    store(tmp_path, "1h", columns.Host, [facts(one) for one in {"db1", *(x.host for x in rows)}])
    found = peers.explain(Question(tmp_path, tier="1m", end_wall_ns=SPAN.end_wall_ns,
                                   start_wall_ns=START_NS), "db1")  # fmt: skip
    assert says in found.sentence
    assert "is like" not in found.sentence


def test_facts_are_those_of_the_recording_that_began_last(tmp_path: Path) -> None:
    # An upgrade inside of an hour: 10.11.9 sorts after 10.11.19.
    old = facts("db1", 1, 60, server_version="10.11.9")
    new = facts("db1", 2, 1800, server_version="10.11.19")
    store(tmp_path, "1h", columns.Host, [old, new])
    question = Question(tmp_path)
    halves = Span(START_NS, START_NS + HOUR_NS // 2), SPAN
    with question.ask(SPAN, "1h", (columns.Host,)) as (engine, _):
        versions = [host_sums.facts(engine, one)["db1"]["server_version"] for one in halves]
    assert versions == ["10.11.9", "10.11.19"]


def test_a_flame_graph_of_many_hosts_asks_the_engine_a_fixed_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"db{number}" for number in range(30)]
    stack = ("on_cpu", "sign", "on_cpu", "bignum", -1, 0, 0, SECOND_NS, 5)
    store(tmp_path, "1h", columns.Interval, [interval(0, name) for name in names])
    store(tmp_path, "1h", columns.Host, [facts(name) for name in names])
    rows = [columns.Stacks(name, START_NS, 1, *stack) for name in names]
    store(tmp_path, "1h", columns.Stacks, rows)
    asked: list[str] = []
    query = DuckDb.query

    def count(engine: DuckDb, sql: str) -> Any:
        asked.append(sql)
        return query(engine, sql)

    monkeypatch.setattr(DuckDb, "query", count)
    profiles.profile(Question(tmp_path), "on_cpu", ("host=db*",), SPAN)
    assert len(asked) < 10


@pytest.mark.parametrize("kind", ["on_cpu", "off_cpu"])
def test_hours_without_stacks_add_no_time_to_a_flame_graph(tmp_path: Path, kind: str) -> None:
    """The hour that goes on, or one that was not explained, halved every frame."""
    state, per_second = ("on_cpu", 5 / 60) if kind == "on_cpu" else ("runnable", 2 / 60)
    time_ns = round(per_second * STEP_NS)
    for hour in (0, 1):
        at_ns = START_NS + hour * HOUR_NS
        one = interval(60 * hour, served_ns=time_ns)
        store(tmp_path, "1h", columns.Interval, [one], at_ns)
        store(tmp_path, "1h", columns.Host, [facts("db1")._replace(start_wall_ns=at_ns)], at_ns)
    stack = columns.Stacks("db1", START_NS, 1, kind, "sign", state, "", -1, 0, 0, time_ns, 5)
    store(tmp_path, "1h", columns.Stacks, [stack])
    both = Span(START_NS, START_NS + 2 * HOUR_NS)
    profile, _ = profiles.profile(Question(tmp_path), kind, (), both)
    assert profile.total_ns == pytest.approx(per_second * SECOND_NS)


def test_an_explained_hour_without_waits_counts_in_a_flame_graph_of_waits(tmp_path: Path) -> None:
    names = ("db1", "db2")
    served = (2 * SECOND_NS, SECOND_NS)
    hours = [interval(0, name, served_ns=ns) for name, ns in zip(names, served, strict=True)]
    store(tmp_path, "1h", columns.Interval, hours)
    store(tmp_path, "1h", columns.Host, [facts(name) for name in names])
    on_cpu = ("on_cpu", "sign", "on_cpu", "bignum", -1, 0, 0, SECOND_NS, 5)
    wait = ("off_cpu", "sign", "runnable", "", -1, 0, 0, SECOND_NS, 5)
    rows = [columns.Stacks(name, START_NS, 1, *on_cpu) for name in names]
    store(tmp_path, "1h", columns.Stacks, [*rows, columns.Stacks("db1", START_NS, 1, *wait)])
    profile, _ = profiles.profile(Question(tmp_path), "off_cpu", (), SPAN)
    assert profile.total_ns == pytest.approx(SECOND_NS / 120)


@pytest.mark.parametrize("part", [1, 4])
def test_stacks_of_a_part_of_an_hour_are_divided_by_that_part(tmp_path: Path, part: int) -> None:
    """Where raw windows ended early: the stacks tell what share of the hour's time they have."""
    served_ns = 8 * SECOND_NS
    store(tmp_path, "1h", columns.Interval, [interval(0, served_ns=served_ns)])
    store(tmp_path, "1h", columns.Host, [facts("db1")])
    on_cpu = ("on_cpu", "sign", "on_cpu", "bignum", -1, 0, 0, 5 * SECOND_NS // part, 5)
    wait = ("off_cpu", "sign", "runnable", "", -1, 0, 0, 3 * SECOND_NS // part, 5)
    rows = [columns.Stacks("db1", START_NS, 1, *one) for one in (on_cpu, wait)]
    store(tmp_path, "1h", columns.Stacks, rows)
    profile, _ = profiles.profile(Question(tmp_path), "on_cpu", (), SPAN)
    assert profile.total_ns == pytest.approx(5 * SECOND_NS / 60)
    picture = tmp_path / "picture.svg"
    assert main(["fleet", "flamegraph", "--data", str(tmp_path), "-o", str(picture)]) == 0
    assert "ended early counts by the share" in picture.read_text(), "the picture says it, too"

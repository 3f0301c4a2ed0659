# SPDX-License-Identifier: GPL-2.0-only
"""DuckDB, ClickHouse and Spark give the same answers on the same files."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tlstax.analysis.fleet import changes, columns, metrics, peers, profiles, ranking
from tlstax.analysis.fleet.clickhouse_ddl import ddl
from tlstax.analysis.fleet.columns import HOUR_NS, SCHEMA_VERSION
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.rollup.intervals import WALL
from tlstax.analysis.fleet.store import adding, compaction
from tlstax.analysis.fleet.whatif.judging import Wish
from tlstax.analysis.fleet.whatif.savings import savings
from tlstax.analysis.rows import tables as capture_tables
from tlstax.collectors.capture.micro_costs import Cost, HandshakeCost, KeyCosts, MicroCosts
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import table_name
from tlstax.tests import fleet_replay, fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet, Planted
from tlstax.tests.fleet_rows import as_version_1
from tlstax.tests.level_tables import as_flow, with_signatures

DEMO = Path(__file__).resolve().parents[2] / "docs/demo/demo.tlstax"
HOSTS = 1000
NOON = START_NS + 12 * HOUR_NS
SIDES = Span(START_NS, NOON), Span(NOON, START_NS + 24 * HOUR_NS)
MINUTE_HOSTS = 100
ONE_HOUR = START_NS + HOUR_NS
MINUTE_SIDES = Span(START_NS, ONE_HOUR), Span(ONE_HOUR, START_NS + 2 * HOUR_NS)


def cost(us: float) -> Cost:
    return Cost(us * 1e3, us * 0.98e3, us * 1.02e3)


def key(sign_us: float, full_us: float) -> KeyCosts:
    full, resumed = (HandshakeCost(cost(us), cost(us)) for us in (full_us, 300))
    return KeyCosts(cost(sign_us), cost(20), full, resumed, cost(800))


# Of the host of the demo; the kinds of key are those whose signatures take as long as in the data.
COSTS = MicroCosts(
    "OpenSSL 3.0.19", "vm", "Intel(R) Xeon(R) Processor", "TLSv1.3", True, cost(40), cost(35),
    {"rsa:2048": key(280, 1200), "rsa:3072": key(1200, 2100), "ec:p256": key(27, 920)},
)  # fmt: skip


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day of replayed hosts, with every table that questions read."""
    data = tmp_path_factory.mktemp("day")
    planted = Planted(NOON, range(37), range(50, 75), range(220, 245))
    fleet = Fleet(HOSTS, [fleet_replay.profile(DEMO)], planted, with_networks=True)
    tables = (columns.Interval, columns.Host, columns.ClientNet, columns.Ledger)
    fleet_writer.write(fleet, data, "1h", 24, (*tables, columns.Handshake, columns.PhaseLatency))
    return data


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of fewer hosts in intervals of a minute; their facts are by the hour."""
    data = tmp_path_factory.mktemp("minutes")
    planted = Planted(ONE_HOUR, range(10), range(25, 50), range(60, 75))
    fleet = Fleet(MINUTE_HOSTS, [fleet_replay.profile(DEMO)], planted, with_networks=True)
    tables = (columns.Interval, columns.ClientNet, columns.Ledger, columns.Handshake)
    fleet_writer.write(fleet, data, "1m", 2, (*tables, columns.PhaseLatency))
    fleet_writer.write(fleet, data, "1h", 2, (columns.Host,))
    return data


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings, one of them compacted."""
    data = tmp_path_factory.mktemp("recorded")
    adding.add(capture.read(DEMO, "db1"), data)
    compaction.compact(data)
    adding.add(capture.read(DEMO, "db2"), data)
    return data


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings at levels record, flow (estimates) and signature (operations unseen).

    The first one is in files of version 1.
    """
    data = tmp_path_factory.mktemp("levels")
    with CaptureReader.open(DEMO) as reader:
        whole = capture_tables.load(reader)
    made = {"record": whole, "flow": as_flow(whole), "signature": with_signatures(whole)}
    for host, tables in made.items():
        adding.add(capture.roll_up(tables, "demo.tlstax", host=host), data)
        if host == "record":
            as_version_1(data)
    return data


@pytest.fixture(scope="module")
def folders(day: Path, minutes: Path, recorded: Path, levels: Path) -> list[Path]:
    return [day, minutes, recorded, levels]


def answers(engine: str, folders: Sequence[Path]) -> dict[str, Any]:
    day, minutes, recorded, levels = folders
    question, two = Question(day, engine), Question(recorded, engine)
    three, short = Question(levels, engine), Question(minutes, engine, tier="1m")
    top = metrics.of_name("tls_cpus")
    return {
        "top": ranking.top(question, top, HOSTS, "tls_library", WALL),
        "compare": changes.between_times(question, *SIDES),
        "groups": changes.between_groups(question, ["cluster=c00*"], ["cluster=c01*"]),
        "explain": peers.explain(question, "replayed-00003"),
        "two": ranking.top(two, top, 5, "tls_library", "command"),
        "levels": ranking.top(three, top, 5, "tls_library", WALL),
        "signatures": peers.explain(three, "signature"),
        "minutes": ranking.top(short, top, MINUTE_HOSTS, "tls_library", WALL),
        "compare_minutes": changes.between_times(short, *MINUTE_SIDES),
        "explain_minutes": peers.explain(short, "replayed-00003"),
        "pooled": savings(three, Wish(pool=100), (), 5),
        "keys": savings(question, Wish(key="ec:p256"), [COSTS], HOSTS),
        "library": savings(question, Wish(library="openssl-3.5"), (), HOSTS),
        "resumed": savings(two, Wish(resume=0.9), [COSTS], 5),
        "findings": ranking.by_finding(two, "none", 5),
        "flames": profiles.profile(two, "on_cpu", (), two.span()),
        "waits": profiles.profile(two, "off_cpu", ("host=db2",), two.span()),
    }


def plain(value: Any) -> Any:
    """Without the engine's name, for comparison."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.asdict(value)
        return {name: plain(one) for name, one in fields.items() if name != "engine"}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items() if key != "engine"}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def differences(first: Any, second: Any, at: str = "") -> list[str]:
    """Where two answers differ by more than the order of a sum."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = first.keys() | second.keys()
        return [
            line
            for key in sorted(keys)
            for line in differences(first.get(key), second.get(key), f"{at}.{key}")
        ]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{at}[{n}]")]
    if isinstance(first, float) and isinstance(second, float):
        alike = second == pytest.approx(first, rel=1e-9, abs=1e-12)
        return [] if alike else [f"{at}: {first!r} and {second!r}"]
    return [] if first == second else [f"{at}: {first!r:.200} and {second!r:.200}"]


@pytest.fixture(scope="module")
def expected(folders: Sequence[Path]) -> Any:
    found = plain(answers("duckdb", folders))
    assert len(found["top"]["hosts"]) == HOSTS
    assert len(found["minutes"]["hosts"]) == MINUTE_HOSTS
    assert {"metric", "facts"} <= {group["kind"] for group in found["compare_minutes"]["groups"]}
    # All but those with another library, for which there are no costs; of these some are like them.
    counts = {name: found[name]["predicted_count"] for name in ("keys", "library", "resumed")}
    assert (counts["keys"], counts["resumed"]) == (HOSTS - 25, 2)
    assert 0 < counts["library"] < HOSTS - 25
    estimated = [line["host"] for line in found["levels"]["hosts"] if line["low"] is not None]
    assert estimated == ["flow"]
    return found


@pytest.mark.parametrize("engine", ["clickhouse", "spark"])
def test_engines_agree(folders: Sequence[Path], expected: Any, engine: str) -> None:
    found = plain(answers(engine, folders))
    assert differences(expected, found) == []


def test_a_difference_would_be_seen(expected: Any) -> None:
    changed = {**expected, "top": {**expected["top"], "total": expected["top"]["total"] * 1.001}}
    assert differences(expected, changed) != []


def test_tables_of_a_clickhouse_server_take_the_files(recorded: Path, levels: Path) -> None:
    from chdb import session

    server = session.Session()
    for statement in re.sub(r"--.*", "", ddl()).split(";"):
        if statement.strip():
            server.query(statement)
    for table in columns.TABLES:
        name = table_name(table)
        found = [
            path
            for data in (recorded, levels)
            for path in sorted((data / "tier=1h" / f"table={name}").rglob("*.parquet"))
        ]
        tier = "" if table in columns.HOURLY else "'1h', "
        for path in found:
            there = pq.read_schema(path).names  # of version 1 some have fewer
            into = ", ".join([*(["tier"] if tier else []), *there])
            server.query(
                f"INSERT INTO tlstax.`{name}` ({into}) "
                f"SELECT {tier}{', '.join(there)} FROM file('{path}', 'Parquet')"
            )
        count = int(str(server.query(f"SELECT count() FROM tlstax.`{name}` FINAL", "CSV")))
        assert (count > 0) == bool(found), name
    sums = server.query("SELECT uniqExact(host), sum(sample_count) FROM tlstax.`interval` FINAL")
    assert str(sums).strip() == f"5,{5 * 26239}"
    partial = "SELECT sum(partial_count) FROM tlstax.`handshake` FINAL"
    assert int(str(server.query(partial, "CSV"))) > 0
    split = "SELECT host, low_ns < high_ns FROM tlstax.`record_split` FINAL"
    assert str(server.query(split, "CSV")).strip() == '"flow",1'
    assert SCHEMA_VERSION == 2

# SPDX-License-Identifier: GPL-2.0-only
"""Facts of hosts, and sums by period: the same by whichever query they are read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlstax.analysis.fleet import columns, host_sums, location, metrics, peers, ranking, terms
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.engines.opening import open_engine
from tlstax.analysis.fleet.host_sums import FACTS, Span
from tlstax.analysis.fleet.metrics import BY_NAME
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.fleet.store.layout import Place, part_name
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet

NOON = START_NS + 12 * HOUR_NS
BEFORE, AFTER = Span(START_NS, NOON), Span(NOON, NOON + 12 * HOUR_NS)


def of_host(host: str, hour: int, source_id: int, library: str, **more: Any) -> columns.Host:
    start_ns = START_NS + hour * HOUR_NS
    known: dict[str, Any] = {
        **dict.fromkeys(columns.Host._fields, ""),
        "host": host,
        "start_wall_ns": start_ns,
        "source_id": source_id,
        "cpu_count": 4,
        "tls_library": library,
        "first_wall_ns": start_ns + source_id * SECOND_NS,
    }
    return columns.Host(**{**known, **more})


def asked(data: Path, rows: list[columns.Host]) -> Iterator[Engine]:
    for row in rows:
        place = Place("1h", columns.Host, row.start_wall_ns)
        hour = [one for one in rows if one.start_wall_ns == row.start_wall_ns]
        path = place.folder(data) / part_name(1)
        parquet_files.write(path, columns.Host, [parquet_files.table_of(columns.Host, hour)])
    files, folder = location.select(data, "1h", (columns.Host,), (None, None))
    with open_engine("duckdb", files, folder) as engine:
        yield engine


def libraries(found: host_sums.Facts) -> dict[str, str]:
    return {host: facts["tls_library"] for host, facts in found.items()}


def test_the_facts_of_a_side_are_those_of_the_recording_that_began_last(tmp_path: Path) -> None:
    rows = [
        of_host("both", 3, 1, "3.0"),
        of_host("both", 4, 2, "3.1"),
        of_host("both", 4, 3, "3.2"),
        of_host("both", 20, 1, "3.5"),
        of_host("gone", 2, 1, "1.1"),
        of_host("new", 13, 1, "3.6"),
    ]
    for engine in asked(tmp_path, rows):
        before, after = host_sums.facts_of(engine, (BEFORE, AFTER))
        assert libraries(before) == {"both": "3.2", "gone": "1.1"}
        assert libraries(after) == {"both": "3.5", "new": "3.6"}
        assert host_sums.facts(engine, BEFORE) == before
        assert set(before["both"]) == set(FACTS)
        assert before["both"]["cpu_count"] == "4"
        assert host_sums.facts(engine, Span(0, HOUR_NS)) == {}


def test_of_recordings_that_began_at_once_the_larger_facts_count(tmp_path: Path) -> None:
    same = {"first_wall_ns": START_NS + 7}
    rows = [
        of_host("db1", 0, 2, "3.0", cpu_count=10, **same),
        of_host("db1", 0, 1, "3.0", cpu_count=9, **same),
        of_host("db2", 0, 1, "3.0", cpu_count=9, **same),
    ]
    for engine in asked(tmp_path, rows):
        found = host_sums.facts(engine, BEFORE)
        assert {host: facts["cpu_count"] for host, facts in found.items()} == {
            "db1": "10",
            "db2": "9",
        }


def test_hosts_with_the_same_facts_share_them(tmp_path: Path) -> None:
    rows = [of_host(f"db{n}", hour, 1, "3.0") for n in range(3) for hour in (1, 13)]
    for engine in asked(tmp_path, rows):
        before, after = host_sums.facts_of(engine, (BEFORE, AFTER))
        assert {id(facts) for facts in (*before.values(), *after.values())} == {id(before["db0"])}


@pytest.fixture(scope="module")
def day(profile: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("day")
    fleet = Fleet(12, [profile], observed_share=0.3)
    fleet_writer.write(fleet, data, "1h", 24, (columns.Interval, columns.Host))
    return data


def test_periods_of_several_intervals_are_the_sums_of_their_intervals(day: Path) -> None:
    files, folder = location.select(day, "1h", (columns.Interval,), (None, None))
    spans = Span(START_NS, START_NS + 6 * HOUR_NS), Span(NOON, NOON + 5 * HOUR_NS)
    with open_engine("duckdb", files, folder) as engine:
        single = host_sums.by_period(engine, spans, HOUR_NS, HOUR_NS)
        double = host_sums.by_period(engine, spans, 2 * HOUR_NS, HOUR_NS)
        whole = [host_sums.over(engine, span) for span in spans]
    assert [len(side.starts_ns) for side in single] == [6, 5]
    assert double[1].starts_ns == [NOON, NOON + 2 * HOUR_NS, NOON + 4 * HOUR_NS]
    for side, (one, two) in enumerate(zip(single, double, strict=True)):
        assert one.hosts == two.hosts == whole[side].hosts
        for name, values in one.by_name.items():
            padded = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
            pairs = padded.reshape(len(values), -1, 2).sum(axis=2)
            assert two.by_name[name] == pytest.approx(pairs)
            assert one.whole().by_name[name] == pytest.approx(whole[side].by_name[name])
    assert single[0].by_name["handshakes"].min() > 0


def test_periods_count_what_was_observed_in_each_interval(day: Path, tmp_path: Path) -> None:
    unseen = ("", "ledger", "handshake", "record")
    for hour, kind in enumerate(unseen):
        place = Place("1h", columns.Interval, START_NS + hour * HOUR_NS)
        (found,) = parquet_files.groups(next(place.folder(day).iterdir()))
        changed = {f"{kind}_observed_ns": 0} if kind else {}
        rows = [columns.Interval(**{**row, **changed}) for row in found.to_pylist()]
        path = place.folder(tmp_path) / part_name(1)
        table = parquet_files.table_of(columns.Interval, rows)
        parquet_files.write(path, columns.Interval, [table])
    files, folder = location.select(tmp_path, "1h", (columns.Interval,), (None, None))
    span = Span(START_NS, START_NS + len(unseen) * HOUR_NS)
    with open_engine("duckdb", files, folder) as engine:
        whole = host_sums.over(engine, span).by_name
        for period_ns in (HOUR_NS, 2 * HOUR_NS, 4 * HOUR_NS):
            (found,) = host_sums.by_period(engine, [span], period_ns, HOUR_NS)
            assert found.whole().by_name.keys() == whole.keys()
            for name, values in found.whole().by_name.items():
                assert values == pytest.approx(whole[name]), name
    assert whole["timed"][0] < whole["handshakes"][0]
    assert whole["encrypted"][0] < whole["commands"][0]


def by_definition(name: str, rows: list[dict[str, Any]]) -> float:
    """A sum of metrics.SUMS over rows, from its definition."""
    of, is_seen = metrics.SUMS[name.removesuffix(metrics.SEEN)], name.endswith(metrics.SEEN)
    whole = 0.0
    for row in rows:
        if row[f"{of.when}_observed_ns"]:
            for column, scaled_by, times in of.parts:
                value = row[column] * times
                if scaled_by and not is_seen:
                    observed_ns = row[f"{scaled_by}_observed_ns"]
                    value *= row["recorded_ns"] / observed_ns if observed_ns else 0.0
                whole += value
    return whole


def test_each_sum_is_what_it_is_defined_as(day: Path, tmp_path: Path) -> None:
    """Kinds that were observed for different times, and for none, on the same host."""
    kinds, rows = ("ledger", "handshake", "record"), []
    for hour in range(8):
        place = Place("1h", columns.Interval, START_NS + hour * HOUR_NS)
        (found,) = parquet_files.groups(next(place.folder(day).iterdir()))
        of_hour = found.to_pylist()
        for number, row in enumerate(of_hour):
            for bit, kind in enumerate(kinds):
                part = (number + 2 * bit + 1) / 20 if hour >> bit & 1 else 0
                row[f"{kind}_observed_ns"] = int(row["recorded_ns"] * part)
        table = parquet_files.table_of(
            columns.Interval, [columns.Interval(**row) for row in of_hour]
        )
        path = place.folder(tmp_path) / part_name(1)
        parquet_files.write(path, columns.Interval, [table])
        rows += of_hour
    files, folder = location.select(tmp_path, "1h", (columns.Interval,), (None, None))
    span = Span(START_NS, START_NS + 8 * HOUR_NS)
    with open_engine("duckdb", files, folder) as engine:
        whole = host_sums.over(engine, span, metrics.METRICS)
        (periods,) = host_sums.by_period(engine, [span], 2 * HOUR_NS, HOUR_NS)
        (single,) = host_sums.by_period(engine, [span], HOUR_NS, HOUR_NS)
    assert whole.hosts == periods.hosts == single.hosts
    for name in metrics.needed(metrics.METRICS):
        for at, host in enumerate(whole.hosts):
            mine = [row for row in rows if row["host"] == host]
            assert whole.by_name[name][at] == pytest.approx(by_definition(name, mine)), name
            by_hour = [by_definition(name, [row]) for row in mine]
            assert single.by_name[name][at] == pytest.approx(by_hour), name
            pairs = np.reshape(by_hour, (-1, 2)).sum(axis=1)
            assert periods.by_name[name][at] == pytest.approx(pairs), name


def test_an_engine_adds_each_term_once() -> None:
    names = metrics.needed(metrics.METRICS)
    needed = terms.needed(names)
    assert len(needed) == len(set(needed)) < len(names)
    assert terms.added(needed).count("SUM(") == len(needed)


def test_rows_of_one_interval_are_added_and_a_host_is_on_its_own_side(
    day: Path, tmp_path: Path
) -> None:
    rows = []
    for hour in (0, 12):
        path = next(Place("1h", columns.Interval, START_NS + hour * HOUR_NS).folder(day).iterdir())
        (found,) = parquet_files.groups(path)
        rows.append(found.to_pylist())
    twice = [*rows[0], {**rows[0][0], "source_id": 5}]  # two recordings of one host at once
    later = [row for row in rows[1] if row["host"] != "replayed-00003"]
    for hour, kept in ((0, twice), (12, later)):
        path = Place("1h", columns.Interval, START_NS + hour * HOUR_NS).folder(tmp_path)
        table = parquet_files.table_of(columns.Interval, [columns.Interval(**row) for row in kept])
        parquet_files.write(path / part_name(1), columns.Interval, [table])
    files, folder = location.select(tmp_path, "1h", (columns.Interval,), (None, None))
    with open_engine("duckdb", files, folder) as engine:
        before, after = host_sums.by_period(engine, (BEFORE, AFTER), HOUR_NS, HOUR_NS)
    assert before.starts_ns == [START_NS]
    assert after.starts_ns == [NOON]
    assert set(before.hosts) - set(after.hosts) == {"replayed-00003"}
    shakes = [row["handshake_count"] / 0.3 for row in rows[0]]
    assert before.by_name["handshakes"][:, 0] == pytest.approx([2 * shakes[0], *shakes[1:]])
    assert after.by_name["handshakes"].shape == (11, 1)


def test_outliers_are_counted_and_shown_beyond_the_hosts_that_are_asked_for(day: Path) -> None:
    hosts = [f"h{number:03d}" for number in range(300)]
    values = np.array([1.0 + number / 1000 for number in range(300)])
    values[:70] += 1000
    lines, far_count = ranking._lines(Question(day), BY_NAME["tls_cpus"], hosts, values, {}, most=3)
    assert far_count == 70
    assert [line.host for line in lines[:3]] == ["h069", "h068", "h067"]
    assert sum(line.is_outlier for line in lines) == len(lines) == 50
    calm, none_far = ranking._lines(
        Question(day), BY_NAME["tls_cpus"], hosts, values[70:], {}, most=3
    )
    assert (len(calm), none_far) == (3, 0)


def far_hosts(day: Path, metric: metrics.Metric, usual: float, other: float) -> int:
    """How many of 300 hosts are outliers where one has another value than all others."""
    values = np.full(300, usual)
    values[7] = other
    hosts = [f"h{number:03d}" for number in range(300)]
    return ranking._lines(Question(day), metric, hosts, values, {}, most=3)[1]


def test_an_outlier_differs_by_more_than_what_does_not_count(day: Path) -> None:
    """One failure in 100,000 handshakes was an outlier, where no other host had any."""
    assert far_hosts(day, BY_NAME["failed_share"], 0.0, 1e-5) == 0
    assert far_hosts(day, BY_NAME["failed_share"], 0.0, 0.021) == 1
    assert far_hosts(day, BY_NAME["sign_ns"], 300e3, 330e3) == 0
    assert far_hosts(day, BY_NAME["sign_ns"], 300e3, 350e3) == 1
    found = ranking._finding_metric("cpu-wait")
    assert far_hosts(day, found, 0.3, float(np.nextafter(0.3, 1))) == 0
    assert far_hosts(day, found, 0.01, 0.02) == 1


def test_a_host_is_no_outlier_among_its_peers_for_one_failure() -> None:
    failed = {}
    for share in (1e-5, 0.03):
        by_name = {name: np.zeros(20) for name in metrics.needed(metrics.METRICS)}
        by_name["handshakes"] += 100_000
        by_name[metrics.seen("handshakes")] += 100_000
        by_name["failed"][3] = share * 100_000
        sums = host_sums.Sums([f"h{number}" for number in range(20)], [], by_name)
        (failed[share],) = (
            line.is_outlier
            for line in peers._lines(sums, "h3")
            if line.metric.name == "failed_share"
        )
    assert failed == {1e-5: False, 0.03: True}

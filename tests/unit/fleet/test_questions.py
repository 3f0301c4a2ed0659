# SPDX-License-Identifier: GPL-2.0-only
"""Answers about many hosts: what changed is found and named, and nobody else is."""

from pathlib import Path

import numpy as np
import pytest

from tlstax import TlstaxError
from tlstax.analysis.fleet import changes, columns, host_sums, metrics, peers, profiles, ranking
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS
from tlstax.analysis.fleet.host_sums import Span, Sums
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.intervals import WALL
from tlstax.analysis.fleet.store import adding, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.analysis.model.fleet import FleetComparison
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet, Planted

NOON = START_NS + 12 * HOUR_NS
BEFORE, AFTER = Span(START_NS, NOON), Span(NOON, START_NS + 24 * HOUR_NS)
TABLES = (columns.Interval, columns.Host, columns.ClientNet)
KEYS, LIBRARY, CLIENTS = tuple(range(37)), tuple(range(50, 75)), tuple(range(220, 245))


def replay(data: Path, fleet: Fleet, tier: str = "1h", hours: int = 24) -> Path:
    fleet_writer.write(fleet, data, tier, hours, TABLES)
    return data


@pytest.fixture(scope="module")
def planted(profile: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    change = Planted(NOON, KEYS, LIBRARY, CLIENTS)
    fleet = Fleet(300, [profile], change, with_networks=True)
    return replay(tmp_path_factory.mktemp("planted"), fleet)


@pytest.fixture(scope="module")
def compared(planted: Path) -> FleetComparison:
    return changes.between_times(Question(planted), BEFORE, AFTER)


def hosts(numbers: tuple[int, ...]) -> list[str]:
    return [f"replayed-{number:05d}" for number in numbers]


def test_a_planted_change_is_found_and_named(compared: FleetComparison) -> None:
    found = {(group.kind, group.metric): group for group in compared.groups}
    assert found.keys() == {
        ("facts", ""),
        ("metric", "sign_ns"),
        ("metric", "resumed_share"),
        ("network", "resumed_share"),
    }
    assert found["metric", "sign_ns"].hosts == hosts(KEYS)
    assert "a longer key" in found["metric", "sign_ns"].cause
    assert found["facts", ""].hosts == hosts(LIBRARY)
    assert found["facts", ""].sentence.startswith(
        "TLS library: OpenSSL 3.0.19 → OpenSSL 3.5.4 on 25 hosts: all of cluster c002"
    )
    assert found["metric", "resumed_share"].hosts == hosts(CLIENTS)
    assert "198.51.100.0/24" in found["network", "resumed_share"].sentence


def test_no_other_host_is_named(compared: FleetComparison) -> None:
    named = {host for group in compared.groups for host in group.hosts}
    assert named == set(hosts((*KEYS, *LIBRARY, *CLIENTS)))


def test_the_size_of_the_change_lies_in_its_interval(compared: FleetComparison) -> None:
    (group,) = (one for one in compared.groups if one.metric == "sign_ns")
    (line,) = (one for one in group.changes if one.metric.name == "sign_ns")
    assert line.verdict == "more"
    assert line.change.low is not None
    assert line.change.high is not None
    assert line.change.low < 6.3 < line.change.high
    assert line.change.host_count == len(KEYS)


def test_nobody_is_named_where_nothing_changed(profile: RolledUp, tmp_path: Path) -> None:
    data = replay(tmp_path, Fleet(300, [profile], with_networks=True))
    found = changes.between_times(Question(data), BEFORE, AFTER)
    assert found.groups == []
    assert found.sentence.startswith("None of 300 hosts changed more than the others")


def test_hosts_that_a_change_did_not_reach_are_told_as_that(
    profile: RolledUp, tmp_path: Path
) -> None:
    # A new key on all hosts but three: they did not get a shorter one.
    data = replay(tmp_path, Fleet(60, [profile], Planted(NOON, tuple(range(3, 60)))))
    found = changes.between_times(Question(data), BEFORE, AFTER)
    (group,) = (one for one in found.groups if one.metric == "sign_ns")
    assert group.hosts == hosts((0, 1, 2))
    assert "while it changed more on most hosts" in group.sentence
    assert "did not reach these" in group.cause
    assert "less CPU time" not in found.sentence


def test_a_host_is_not_compared_with_itself(planted: Path) -> None:
    question = Question(planted, start_wall_ns=AFTER.start_wall_ns)
    found = changes.between_groups(question, ["cluster=c000"], ["host=*"])
    assert found.before == "host=*, without the other group: 275 hosts"
    assert found.after == "cluster=c000: 25 hosts"
    with pytest.raises(TlstaxError, match="nothing to compare with"):
        changes.between_groups(question, ["host=*"], ["cluster=c000"])


def test_hosts_with_nearly_equal_values_are_one_range() -> None:
    # The same sums in another order differ in the last bits; numpy makes no ranges of that.
    third = np.nextafter(0.3, 1)
    assert [one.host_count for one in ranking._ranges(np.array([0.3, third, third]))] == [3]
    assert [one.host_count for one in ranking._ranges(np.array([np.inf, 1.0]))] == [1]
    assert len(ranking._ranges(np.array([1.0, 2.0]))) > 1
    assert ranking._ranges(np.array([])) == []


def test_a_change_too_small_to_matter_names_nobody(profile: RolledUp, tmp_path: Path) -> None:
    data = replay(tmp_path, Fleet(60, [profile], Planted(NOON, tuple(range(10)), key_factor=1.08)))
    assert changes.between_times(Question(data), BEFORE, AFTER).groups == []


def test_noise_of_thousands_of_hosts_names_hardly_anybody() -> None:
    # Five hosts changed. Of 2,000 that only fluctuate, dozens would be named, each judged alone.
    random = np.random.default_rng(5)
    names = [f"h{number}" for number in range(2000)]
    sides = []
    for _ in range(2):
        by_name = {name: np.zeros((2000, 12)) for name in metrics.needed(metrics.METRICS)}
        by_name["signed"] += 1000
        by_name[metrics.seen("signed")] += 1000
        by_name["sign_ns"] = 1e9 * random.lognormal(0, 0.6, (2000, 12))
        sides.append(Sums(names, list(range(12)), by_name))
    sides[1].by_name["sign_ns"][:5] *= 30
    marked, is_judged = changes.mark(sides[0], sides[1], with_load=False)
    assert is_judged
    assert {0, 1, 2, 3, 4} <= {mark.row for mark in marked}
    assert len(marked) <= 6


def test_load_names_hosts_only_if_asked_for(profile: RolledUp, tmp_path: Path) -> None:
    data = replay(tmp_path, Fleet(60, [profile]))
    busy = Place("1h", columns.Interval, NOON)
    path = busy.folder(data) / COMPACTED
    for hour in range(12, 24):
        path = Place("1h", columns.Interval, START_NS + hour * HOUR_NS).folder(data) / COMPACTED
        rows = [row for rows in parquet_files.groups(path) for row in rows.to_pylist()]
        for row in [row for row in rows if row["host"] == "replayed-00000"]:
            for name in row.keys() - {"host", "start_wall_ns", "source_id"}:
                if not name.endswith(("recorded_ns", "observed_ns")):
                    row[name] *= 5
        made = [columns.Interval(**row) for row in rows]
        table = parquet_files.table_of(columns.Interval, made)
        parquet_files.write(path, columns.Interval, [table])
    assert changes.between_times(Question(data), BEFORE, AFTER).groups == []
    asked = changes.between_times(Question(data), BEFORE, AFTER, with_load=True)
    assert {host for group in asked.groups for host in group.hosts} == {"replayed-00000"}


def test_few_hosts_have_a_range_and_no_verdict(profile: RolledUp, tmp_path: Path) -> None:
    data = replay(tmp_path, Fleet(5, [profile], Planted(NOON, (0, 1, 2, 3, 4))))
    found = changes.between_times(Question(data), BEFORE, AFTER)
    (line,) = (one for one in found.metrics if one.metric.name == "sign_ns")
    assert line.verdict == "no interval"
    assert line.p_value is None
    assert line.change.host_count == 5


def test_single_hosts_are_judged_by_their_own_periods(profile: RolledUp, tmp_path: Path) -> None:
    # Two hosts have no fleet to be compared with, but hours of their own.
    data = replay(tmp_path, Fleet(2, [profile], Planted(NOON, (1,))))
    found = changes.between_times(Question(data), BEFORE, AFTER)
    assert [group.hosts for group in found.groups] == [["replayed-00001"]]


def test_groups_of_hosts_are_compared_over_hosts(planted: Path) -> None:
    question = Question(planted, start_wall_ns=AFTER.start_wall_ns)
    found = changes.between_groups(question, ["cluster=c000"], ["cluster=c010"])
    (line,) = (one for one in found.metrics if one.metric.name == "sign_ns")
    assert line.verdict == "more"
    assert line.change.value == pytest.approx(6.3, rel=0.1)
    others = [one.verdict for one in found.metrics if one.metric.name == "commands_per_connection"]
    assert others == ["no difference seen"]


def test_a_host_that_was_watched_less_counts_as_much(profile: RolledUp, tmp_path: Path) -> None:
    # Both hosts do the same; one recorder looked a tenth of the time.
    whole = replay(tmp_path / "whole", Fleet(20, [profile]))
    part = replay(tmp_path / "part", Fleet(20, [profile], observed_share=0.1))
    for name, tolerance in (("tls_cpus", 0.05), ("handshake_rate", 0.05)):
        metric = metrics.of_name(name)
        totals = [ranking.top(Question(data), metric, 20, "", "").total for data in (whole, part)]
        assert totals[1] == pytest.approx(totals[0], rel=tolerance)


def test_hosts_are_ranked_by_what_they_pay(planted: Path) -> None:
    found = ranking.top(Question(planted), metrics.of_name("sign_ns"), 50, "", "")
    assert {line.host for line in found.hosts[:37]} == set(hosts(KEYS))
    assert {line.host for line in found.outliers} == set(hosts(KEYS))
    assert found.fleet.host_count == 300
    assert sum(one.host_count for one in found.ranges) == 300


def test_a_host_is_explained_among_its_cluster(planted: Path) -> None:
    found = peers.explain(Question(planted), "replayed-00026")
    assert found.peers == "24 other hosts of cluster c001"
    assert [v.facts["tls_library"] for v in found.versions] == ["OpenSSL 3.0.19"]
    late = peers.explain(Question(planted), "replayed-00050")
    assert [v.facts.get("tls_library") for v in late.versions] == [
        "OpenSSL 3.0.19",
        "OpenSSL 3.5.4",
    ]
    with pytest.raises(TlstaxError, match="no host db99"):
        peers.explain(Question(planted), "db99")


def test_short_recordings_are_judged_by_seconds(profile: RolledUp, tmp_path: Path) -> None:
    late = Planted(START_NS + 1800 * SECOND_NS, (3,))
    data = tmp_path / "minutes"
    fleet = Fleet(12, [profile], late)
    fleet_writer.write(fleet, data, "10s", 1, (columns.Interval,))
    fleet_writer.write(fleet, data, "1h", 1, (columns.Host,))
    half = Span(START_NS + 1700 * SECOND_NS, late.at_ns), Span(late.at_ns, START_NS + HOUR_NS)
    half = half[0], Span(half[1].start_wall_ns, half[1].start_wall_ns + 100 * SECOND_NS)
    found = changes.between_times(Question(data), *half)
    assert found.scope.tier == "10s"
    assert [group.hosts for group in found.groups] == [["replayed-00003"]]


def test_a_tier_that_the_data_set_lacks_is_an_error_and_no_empty_answer(planted: Path) -> None:
    """`fleet compare --span 2h` said "None of 0 hosts changed", and the others similar."""
    two_hours = Span(NOON - 2 * HOUR_NS, NOON), Span(NOON, NOON + 2 * HOUR_NS)
    says = r"no intervals of 1m in this time: .* has those of 1h only. Give --tier 1h and times at"
    with pytest.raises(TlstaxError, match=says):
        changes.between_times(Question(planted), *two_hours)
    found = changes.between_times(Question(planted, tier="1h"), *two_hours)
    assert found.scope.host_count == 300
    with pytest.raises(TlstaxError, match="no intervals of 10s in this time"):
        ranking.top(Question(planted, tier="10s"), metrics.BY_NAME["sign_ns"], 3, "", "")


def test_sides_without_a_common_host_are_not_compared(planted: Path) -> None:
    never = Span(START_NS - 24 * HOUR_NS, START_NS)
    with pytest.raises(TlstaxError, match=r"no host was .* both sides: 0 hosts from .*300 hosts"):
        changes.between_times(Question(planted), never, BEFORE)


@pytest.fixture(scope="module")
def two(demo: Path, rolled: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tlstax.analysis.fleet.rollup import capture

    data = tmp_path_factory.mktemp("two")
    adding.add(rolled, data)
    adding.add(capture.read(demo, "db2", "west"), data)
    return data


def test_quantiles_of_a_group_are_those_of_all_its_values(two: Path, demo_tables: object) -> None:
    found = ranking.top(Question(two), metrics.of_name("tls_cpus"), 5, "tls_library", WALL)
    (line,) = found.latencies
    walls = np.sort(
        [row.end_ns - row.start_ns for row in demo_tables.handshakes]  # type: ignore[attr-defined]
    )
    assert line.count == 2 * len(walls)
    for one in line.quantiles:
        true = walls[int(np.ceil(one.q * len(walls))) - 1]
        assert one.figure.value == pytest.approx(true, rel=0.19)
        assert one.figure.low is None  # two hosts have no interval


def test_the_flame_graph_of_a_fleet_sums_to_its_ledgers(two: Path, rolled: RolledUp) -> None:
    question = Question(two)
    profile, _ = profiles.profile(question, "on_cpu", (), question.span())
    (row,) = rolled.rows["1h"][columns.Interval]
    assert isinstance(row, columns.Interval)
    per_second = row.on_cpu_ns / row.recorded_ns * 1e9
    assert profile.total_ns == pytest.approx(per_second, rel=1e-6)
    names = {frame.name for path in profile.folded for frame in path}
    assert {"record_write", "sign", "do_command(THD*, bool)"} <= names
    one, _ = profiles.profile(question, "on_cpu", ("cluster=west",), question.span())
    assert one.total_ns == pytest.approx(per_second, rel=1e-6)


def test_conditions_choose_hosts(planted: Path) -> None:
    found = ranking.top(
        Question(planted, hosts=("cluster=c00[01]", "host=replayed-0001*")),
        *(metrics.of_name("tls_cpus"), 50, "", ""),
    )
    assert {line.host for line in found.hosts} == set(hosts(tuple(range(10, 20))))
    for condition in ("cluster=nowhere", "colour=red", "cluster"):
        with pytest.raises(TlstaxError):
            ranking.top(
                Question(planted, hosts=(condition,)), metrics.of_name("tls_cpus"), 5, "", ""
            )


def test_every_metric_is_made_of_known_sums() -> None:
    for metric in metrics.METRICS:
        assert {metric.above, metric.below} <= metrics.SUMS.keys()
        later = [one.name for one in metrics.METRICS].index(metric.name)
        causes = {one.name for one in metrics.METRICS[:later]}
        assert set(metric.follows) <= causes
    assert host_sums.FACTS[0] == "cluster"

# SPDX-License-Identifier: GPL-2.0-only
"""A host's share of a finding is that of all its time, not that of its worst hour."""

from pathlib import Path

import numpy as np
import pytest

from tlstax.analysis.fleet import columns, metrics, ranking
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.model.fleet import FleetTop
from tlstax.tests.fleet_replay import START_NS
from tlstax.tests.unit.fleet.test_observed import facts, interval, store

FINDING = "none"


def hour(data: Path, at: int, shares: dict[str, float | None], **sums: int) -> None:
    """An hour of these hosts, of a source of its own; None: without the finding."""
    at_ns = START_NS + at * HOUR_NS
    source_id = at + 1
    rows = [
        interval(60 * at, host, **sums)._replace(source_id=source_id, recorded_ns=HOUR_NS)
        for host in shares
    ]
    known = [facts(host, source_id, 3600 * at)._replace(start_wall_ns=at_ns) for host in shares]
    found = [
        columns.Finding(host, at_ns, source_id, FINDING, "all", share, 1.0, "It is so.")
        for host, share in shares.items()
        if share is not None
    ]
    store(data, "1h", columns.Interval, rows, at_ns)
    store(data, "1h", columns.Host, known, at_ns)
    if found:
        store(data, "1h", columns.Finding, found, at_ns)


def ranked(data: Path) -> FleetTop:
    return ranking.by_finding(Question(data), FINDING, 5)


def values(found: FleetTop) -> list[tuple[str, float]]:
    return [(line.host, round(line.value, 9)) for line in found.hosts]


def test_one_bad_hour_does_not_outrank_a_host_that_always_has_it(tmp_path: Path) -> None:
    for at in range(24):
        hour(tmp_path, at, {"bad-hour": 0.5 if at == 7 else None, "always": 0.3})
    found = ranked(tmp_path)
    assert values(found) == [("always", 0.3), ("bad-hour", round(0.5 / 24, 9))]
    (line,) = found.findings
    assert line.hosts == ["always", "bad-hour"]
    assert line.share.value == pytest.approx((0.3 + 0.5 / 24) / 2)
    named = ranking.top(Question(tmp_path), metrics.of_name("tls_cpus"), 5, "", "")
    assert named.findings == found.findings


def test_an_hour_weighs_as_much_as_it_served_in_its_recorded_time(tmp_path: Path) -> None:
    """A quiet hour that was observed throughout, and one that served as much in a tenth of it."""
    hour(tmp_path, 0, {"db1": 0.5}, ledger_observed_ns=HOUR_NS)
    hour(tmp_path, 1, {"db1": 0.1}, ledger_observed_ns=HOUR_NS // 10)
    assert values(ranked(tmp_path)) == [("db1", round(1.5 / 11, 9))]


def test_a_recording_of_several_hours_has_its_finding_in_all_of_them(tmp_path: Path) -> None:
    """The row stands in the hour in which the recording began."""
    hour(tmp_path, 0, {"db1": 0.4})
    at_ns = START_NS + HOUR_NS
    row = interval(60)._replace(source_id=1, recorded_ns=HOUR_NS)
    store(tmp_path, "1h", columns.Interval, [row], at_ns)
    assert values(ranked(tmp_path)) == [("db1", 0.4)]


def test_damaged_shares_and_hours_without_a_ledger_do_no_harm(tmp_path: Path) -> None:
    hour(tmp_path, 0, {"db1": 0.2, "db2": np.nan, "db3": 1e300})
    hour(tmp_path, 1, {"db1": 0.9, "db4": 0.9}, ledger_observed_ns=0, served_ns=SECOND_NS)
    found = ranked(tmp_path)
    assert values(found) == [("db1", 0.2), ("db4", 0.0)]
    assert found.findings[0].host_count == 2

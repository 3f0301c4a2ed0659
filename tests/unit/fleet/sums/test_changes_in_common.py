# SPDX-License-Identifier: GPL-2.0-only
"""What all hosts have in common is subtracted where enough of them have values, and said so."""

from pathlib import Path

import numpy as np
import pytest

from tlstax.analysis.fleet import change_groups, changes, columns, metrics
from tlstax.analysis.fleet.change_groups import Marked
from tlstax.analysis.fleet.columns import HOUR_NS
from tlstax.analysis.fleet.host_sums import Span, Sums
from tlstax.analysis.fleet.metrics import BY_NAME
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.model.fleet import FleetComparison
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet, Planted

NOON = START_NS + 12 * HOUR_NS
BEFORE, AFTER = Span(START_NS, NOON), Span(NOON, START_NS + 24 * HOUR_NS)
COUNT = 40


def signatures(random: np.random.Generator, periods: int, alone: int) -> Sums:
    """Signatures of hosts of which the first takes twice as long; in some periods only it signs."""
    shape = COUNT, periods + alone
    by_name = {name: np.zeros(shape) for name in metrics.needed(metrics.METRICS)}
    signed = by_name["signed"]
    signed[:, :periods] = signed[0] = 1000
    by_name[metrics.seen("signed")] = signed
    by_name["sign_ns"] = signed * 300e3 * random.lognormal(0, 0.02, shape)
    by_name["sign_ns"][0] *= 2
    return Sums([f"h{number:02d}" for number in range(COUNT)], list(range(shape[1])), by_name)


def test_a_host_is_not_compared_with_itself_alone() -> None:
    """By night only one host works: its own time was what "all hosts have in common"."""
    random = np.random.default_rng(5)
    sides = signatures(random, 12, 0), signatures(random, 8, 24)
    assert changes.mark(*sides, with_load=False) == ([], True)


def test_a_change_of_a_host_is_seen_though_it_often_works_alone() -> None:
    random = np.random.default_rng(5)
    sides = signatures(random, 12, 0), signatures(random, 8, 24)
    sides[1].by_name["sign_ns"][0] *= 3
    marked, _ = changes.mark(*sides, with_load=False)
    assert [(mark.row, mark.metric.name) for mark in marked] == [(0, "sign_ns")]
    assert marked[0].change == pytest.approx(3, rel=0.05)


def test_a_metric_that_few_hosts_have_is_judged_as_it_is() -> None:
    """What two hosts had in common was half of what one of them did; others may be idle."""
    random = np.random.default_rng(5)
    sides = signatures(random, 12, 0), signatures(random, 12, 0)
    for side in sides:
        side.by_name["signed"][2:] = 0
    sides[1].by_name["sign_ns"][0] *= 3
    marked, is_judged = changes.mark(*sides, with_load=False)
    assert is_judged
    assert [(mark.row, mark.metric.name) for mark in marked] == [(0, "sign_ns")]
    assert marked[0].change == pytest.approx(3, rel=0.05)


def compared(profile: RolledUp, data: Path, host_count: int) -> FleetComparison:
    """Hosts of which the second one changed."""
    fleet = Fleet(host_count, [profile], Planted(NOON, (1,)))
    fleet_writer.write(fleet, data, "1h", 24, (columns.Interval, columns.Host, columns.ClientNet))
    return changes.between_times(Question(data), BEFORE, AFTER)


@pytest.mark.parametrize("host_count", [7, 8])
def test_few_hosts_are_not_told_to_have_changed_more_than_others(
    profile: RolledUp, tmp_path: Path, host_count: int
) -> None:
    found = compared(profile, tmp_path, host_count)
    assert [group.hosts for group in found.groups] == [["replayed-00001"]]
    has_common = host_count == 8
    more = " more than the others" if has_common else ""
    assert found.sentence.startswith(f"1 of {host_count} hosts changed{more}: more CPU time")
    assert ("is not subtracted, as that takes 8 hosts" in found.note) != has_common
    assert ("less the change that all hosts have in common" in found.note) == has_common


@pytest.mark.parametrize(("count", "says"), [(7, "more CPU time"), (8, "changed less than the")])
def test_few_hosts_are_not_told_to_have_stayed_behind(count: int, says: str) -> None:
    """A host whose sums did not change, though its periods did."""
    hosts = [f"h{number}" for number in range(count)]
    sums = Sums(
        hosts, [], {name: np.full(count, 1000.0) for name in metrics.needed(metrics.METRICS)}
    )
    marked = [Marked(0, BY_NAME["sign_ns"], 300e3, 600e3, 2.0, 1.8, 2.2)]
    (group,) = change_groups.group(Question(Path()), hosts, marked, ({}, {}), (sums, sums))
    assert says in group.summary
    assert ("most hosts" in group.sentence) == (count == 8)


def test_short_sides_are_not_judged_and_the_note_says_what_that_takes() -> None:
    few, many = (changes._note(n, HOUR_NS, is_judged=False, with_load=False) for n in (7, 8))
    assert "at least 8 periods of 10 s. Medians" in few
    assert "at least 8 periods of 10 s in which 8 hosts or more have a value. Medians" in many


@pytest.mark.parametrize("count", [7, 8])
def test_what_was_not_judged_is_not_told_to_have_stayed(count: int) -> None:
    told = change_groups.sentence(count, [], [], is_judged=False)
    assert told.startswith("No host could be judged by itself.")
    seen = change_groups.sentence(count, [], [], is_judged=True)
    few = "No change of a single host was seen."
    assert seen.startswith(few if count == 7 else "None of 8 hosts changed more than the others.")

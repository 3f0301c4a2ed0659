# SPDX-License-Identifier: GPL-2.0-only
"""Hosts that have only longer intervals are told, where nobody asked for the tier."""

import json
from pathlib import Path
from typing import Any

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import changes, columns, peers, ranking
from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.metrics import BY_NAME
from tlstax.analysis.fleet.question import Question, moment
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.whatif.judging import Wish
from tlstax.analysis.fleet.whatif.savings import savings
from tlstax.analysis.model.fleet import FleetScope
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet

MIDDLE_NS = START_NS + 1800 * SECOND_NS
SIDES = Span(MIDDLE_NS - 100 * SECOND_NS, MIDDLE_NS), Span(MIDDLE_NS, MIDDLE_NS + 100 * SECOND_NS)
SAYS = "2 hosts have no intervals of 10s from {} to {}, and no part in this answer: give --tier 1m"


@pytest.fixture(scope="module")
def data(profile: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of 14 hosts, two of which have no intervals of 10 s."""
    made = tmp_path_factory.mktemp("tiers")
    fleet_writer.write(Fleet(12, [profile]), made, "10s", 1, (columns.Interval, columns.Ledger))
    for tier in ("1m", "1h"):
        fleet_writer.write(Fleet(14, [profile]), made, tier, 1, (columns.Interval,))
    fleet_writer.write(Fleet(14, [profile]), made, "1h", 1, (columns.Host,))
    return made


def told(span: Span) -> str:
    return SAYS.format(moment(span.start_wall_ns), moment(span.end_wall_ns))


def test_every_question_tells_hosts_that_its_tier_lacks(data: Path) -> None:
    span = Span(MIDDLE_NS, MIDDLE_NS + 130 * SECOND_NS)
    question = Question(data, start_wall_ns=span.start_wall_ns, end_wall_ns=span.end_wall_ns)
    scopes: list[FleetScope] = [
        ranking.top(question, BY_NAME["sign_ns"], 3, "", "").scope,
        peers.explain(question, "replayed-00013").scope,
        peers.explain(question, "replayed-00000").scope,
        changes.between_groups(question, ["host=*1"], ["host=*"]).scope,
        savings(question, Wish(pool=1000), (), 3).scope,
    ]
    for scope in scopes:
        assert (scope.tier, scope.left_out) == ("10s", [told(span)])


def test_intervals_that_began_before_a_span_count(data: Path) -> None:
    """Of a part of a minute: those of a minute begin before it."""
    span = Span(MIDDLE_NS + 10 * SECOND_NS, MIDDLE_NS + 50 * SECOND_NS)
    question = Question(data, start_wall_ns=span.start_wall_ns, end_wall_ns=span.end_wall_ns)
    scope = ranking.top(question, BY_NAME["sign_ns"], 3, "", "").scope
    assert (scope.tier, scope.left_out) == ("10s", [told(span)])


def test_each_side_of_a_comparison_tells_them(data: Path) -> None:
    found = changes.between_times(Question(data), *SIDES)
    assert found.scope.left_out == [told(side) for side in SIDES]
    assert found.scope.host_count == 12


def test_a_tier_that_was_asked_for_and_chosen_hosts_are_no_surprise(data: Path) -> None:
    times = {"start_wall_ns": MIDDLE_NS, "end_wall_ns": MIDDLE_NS + 130 * SECOND_NS}
    metric = BY_NAME["sign_ns"]
    for question in (
        Question(data, tier="10s", **times),  # type: ignore[arg-type]
        Question(data, hosts=("host=replayed-0000*",), **times),  # type: ignore[arg-type]
        Question(data),
    ):
        assert ranking.top(question, metric, 3, "", "").scope.left_out == []


def test_standard_error_has_it(data: Path, tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "top.html"
    side = SIDES[1]
    words = ["--from", moment(side.start_wall_ns), "--to", moment(side.end_wall_ns)]
    words += ["--data", str(data), "--json", "-", "--html", str(page)]
    assert main(["fleet", "top", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"tlstax: {told(side)}\n"
    assert json.loads(printed.out)["scope"]["left_out"] == [told(side)]
    assert f"<p>What this answer lacks:</p><ul><li>{told(side)}</li></ul>" in page.read_text()

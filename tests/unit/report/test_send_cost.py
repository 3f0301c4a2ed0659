# SPDX-License-Identifier: GPL-2.0-only
"""What recording cost a send, as it was measured in the server: from the stream to the reader."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.document import health
from tlstax.analysis.report.html import page as html
from tlstax.collectors.recording.programs.expected_cost import hit_cost_facts
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.prices import whole_price_of
from tlstax.tests.golden.report import shown
from tlstax.tests.unit.report.examples import document, printed

COST: dict[str, int] = {
    "pairs_count": 22,
    "send_ns": 40_000,
    "server_ns": 8_000,
    "server_low_ns": 7_000,
    "server_high_ns": 9_000,
    "host_ns": 11_000,
    "host_low_ns": 10_000,
    "host_high_ns": 12_500,
    "server_said_ns": 6_000,
    "host_said_ns": 6_500,
    "server_told_ns": 8_000,
    "host_told_ns": 11_000,
    "ratio_ppm": 1_333_333,
    "event_ns": 500,
    "is_server_used": 1,
    "has_clients": 1,
    "is_host_used": 1,
}


def facts(price: Any = None, **values: int) -> dict[str, str]:
    whole = definition().layout("whole_price")(**COST | values)
    return {fact.key: fact.value for fact in hit_cost_facts(price, whole)}


def read(attached: Path, **values: int) -> tuple[str, str]:
    """What the terminal and the page say."""
    meta, content = facts(**values), document(attached)
    cost = health.send_cost(meta)
    assert cost is not None
    content["health"]["observer"] |= {
        "send_cost": asdict(cost),
        "hit_cost_source": meta["hit_cost_source"],
    }
    texts = printed(content), shown.visible_text(html.render(content))
    assert [shown.missing(text, content) for text in texts] == [[], []]
    terminal, page = (" ".join(text.replace("\u00a0", " ").split()) for text in texts)
    return terminal, page


def test_what_was_measured_is_told_with_its_interval(attached: Path) -> None:
    terminal, page = read(attached)
    assert (
        "the cost was measured in this server, by recording it and not in turn: a send took "
        "8.00 µs (7.00 µs..9.00 µs) more of the server's CPU time, which is 20.0 %, with its "
        "clients on this host 11.0 µs (10.0 µs..12.5 µs) (22 pairs of stretches)"
    ) in terminal
    assert "probe hits cost" not in terminal
    assert "measured before the recording 8.00 µs (7.00 µs..9.00 µs), 20.0 %" in page
    assert "With its clients on this host 11.0 µs (10.0 µs..12.5 µs)" in page


def test_what_prices_have_a_part_in_is_named(attached: Path) -> None:
    terminal, page = read(attached, server_told_ns=7_850, host_told_ns=10_500)
    by_both = "by both, each as certain as it is)"
    assert f"which is 20.0 % (prices say 6.00 µs; 7.85 µs {by_both}" in terminal
    assert f"(10.0 µs..12.5 µs) (prices say 6.50 µs; 10.5 µs {by_both}" in terminal
    assert "as prices say, and by both 6.00 µs, 7.85 µs" in page
    assert "as prices say, and by both 6.50 µs, 10.5 µs" in page
    terminal, page = read(attached, pairs_count=15, is_server_used=0, is_host_used=0)
    assert "not used, as it is of fewer than 16 pairs of stretches or not above 0: 8.00" in terminal
    assert "probe hits cost the default: not measured in this server" in terminal
    assert "not used, as it is of fewer than 16 pairs of stretches" in page
    assert "by both" not in page


@pytest.mark.parametrize("is_used", [0, 1])
def test_hits_that_were_measured_yield_to_the_whole(is_used: int) -> None:
    hit = definition().layout("hit_price")(pairs_count=16, hit_ns=2_400, is_used=1)
    meta = facts(hit, is_server_used=is_used, is_host_used=is_used)
    assert meta["hit_cost_source"] == ("scaled" if is_used else "measured")
    assert meta["hit_cost_ns"] == "2400"
    assert meta["send_cost_ns"] == "8000"


def test_nothing_measured_is_nothing_told(attached: Path) -> None:
    assert {fact.key for fact in hit_cost_facts(None, None)} == {"hit_cost_source"}
    assert health.send_cost({}) is None
    assert document(attached)["health"]["observer"]["send_cost"] is None


def test_clients_elsewhere_are_not_told_of(attached: Path) -> None:
    for text in read(attached, has_clients=0, is_host_used=0):
        assert "clients on this host" not in text


def test_clients_that_cannot_be_told_apart_are_named(attached: Path) -> None:
    for text in read(attached, has_clients=0):
        assert "hat its clients on this host pay cannot be told apart" in text


@pytest.mark.parametrize(
    "values",
    [
        {"pairs_count": 0},
        {"pairs_count": 33},
        {"server_low_ns": 8_001},
        {"host_high_ns": 10_999},
        {"send_ns": 1 << 63},
        {"server_low_ns": -(1 << 62)},
        {"is_server_used": 0},
        {"is_server_used": 2},
        {"pairs_count": 15},
        {"ratio_ppm": 0},
        {"server_told_ns": -5_000},
        {"server_told_ns": 8_001},
        {"host_told_ns": 7_999},
        {"is_host_used": 0},
        {"has_clients": 2},
        {"host_told_ns": -(1 << 62)},
    ],
)
def test_a_frame_that_no_recorder_writes_is_refused(values: dict[str, int]) -> None:
    layout = definition().layout("whole_price")
    assert whole_price_of(bytes(layout(**COST))).server_ns == COST["server_ns"]
    with pytest.raises(ValueError, match="a price"):
        whole_price_of(bytes(layout(**COST | values)))


def test_made_up_values_are_no_figure() -> None:
    for key in ("send_cost_ns", "send_cpu_ns", "send_cost_pair_count"):
        assert health.send_cost(facts() | {key: "much"}) is None
    cost = health.send_cost(facts() | {"send_host_cost_high_ns": "much"})
    assert cost is not None
    assert cost.host_ns is cost.host_told_ns is None


def test_a_server_without_cpu_time_has_no_share() -> None:
    cost = health.send_cost(facts(send_ns=0))
    assert cost is not None
    assert cost.server_share is None

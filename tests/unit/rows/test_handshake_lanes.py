# SPDX-License-Identifier: GPL-2.0-only
"""Lanes of handshakes: measured totals, one record where it says one, and no invented pairs."""

import pytest

from tlstax.analysis.rows import handshake_lanes
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.schema import Handshake, Window

GROUP = Group("all", "", "", "", (), frozenset({1}))


def shake(
    number: int, network_ns: int, *, side: str = "server", version: str = "TLSv1.3"
) -> Handshake:
    """On a CPU for 1,000 ns, 700 of them in the crypto that is timed."""
    return Handshake(
        number, 1, 10, 0, 1100 + network_ns, 1000, 60, network_ns, 40, 500, 100, 100, 0, 0, 3, 2,
        "success", version, "c", "g", 0, side,
    )  # fmt: skip


def test_lanes_are_the_median_and_the_slowest_record() -> None:
    rows = [shake(number, 1000 * number) for number in (5, 1, 4, 2, 3)]
    rows.append(rows[0]._replace(handshake_id=6, outcome="failure", end_ns=10**9))
    median, slowest = made = handshake_lanes.lanes(GROUP, rows, Tables())
    assert (median.wall_ns, slowest.wall_ns) == (4100, 6100)
    assert [lane.count for lane in made] == [1, 1]
    times = {part.name: part.time_ns for part in median.parts}
    assert times == {
        "keygen": 100, "derive": 100, "sign": 500, "blocked_network": 3000,
        "other_cpu": 300, "runnable": 60, "blocked_other": 40,
    }  # fmt: skip
    for lane in made:
        assert lane.parts[0].start_ns == 0
        assert lane.parts[-1].end_ns == pytest.approx(lane.wall_ns)
        for before, after in zip(lane.parts, lane.parts[1:], strict=False):
            assert before.end_ns == after.start_ns
    assert "not their order" in handshake_lanes.note(made)
    assert "both sides are means" not in handshake_lanes.note(made)


def test_order_is_that_of_the_version() -> None:
    made = handshake_lanes.lanes(GROUP, [shake(1, 10, version="TLSv1.2")], Tables())
    names = [part.name for part in made[0].parts]
    assert names[:4] == ["keygen", "sign", "blocked_network", "derive"]


def test_sides_stand_beside_each_other_as_means() -> None:
    clients = Tables(
        windows=[Window(7, None, 0, 9)],
        handshakes=[
            shake(number, 100 * number, side="client")._replace(window_id=7) for number in (1, 3)
        ],
    )
    made = handshake_lanes.lanes(GROUP, [shake(1, 10), shake(2, 30)], Tables(clients=clients))
    server, client = made[2:]
    assert (server.side, server.count, server.wall_ns) == ("server", 2, 1120)
    assert (client.side, client.count, client.wall_ns) == ("client", 2, 1300)
    waits = {part.name: part.label for part in client.parts}
    assert waits["blocked_network"] == "waiting for the server"
    assert "both sides are means" in handshake_lanes.note(made)


def test_records_without_waits_are_not_told_apart() -> None:
    row = shake(1, 10)._replace(
        on_cpu_ns=-1, runnable_ns=-1, blocked_network_ns=-1, blocked_other_ns=-1
    )
    made = handshake_lanes.lanes(GROUP, [row], Tables())
    assert [part.name for part in made[0].parts] == ["keygen", "derive", "sign", "rest"]
    assert handshake_lanes.lanes(GROUP, [row._replace(outcome="failure")], Tables()) == []
    assert handshake_lanes.note([]) == ""

# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes by network of the client: once in each tier, bounded, and none unless asked for."""

import dataclasses
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import NETWORKS_MOST, OTHERS, TIERS
from tlstax.analysis.fleet.rollup import capture, client_networks
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.watched_rows import Watching

NETWORKS = [f"198.51.{number}.0/24" for number in range(25)]
RESUMES, NEVER = NETWORKS[0], NETWORKS[1]


def network_of(number: int) -> str:
    """Of the number-th handshake: two networks have a third each."""
    place = number % 3
    return NETWORKS[place if place < 2 else 2 + number // 3 % (len(NETWORKS) - 2)]


@pytest.fixture(scope="module")
def with_networks(demo_tables: Tables) -> Tables:
    handshakes = [
        row._replace(
            client_network=network_of(number),
            resumed=int(network_of(number) == RESUMES),
            outcome="success",
        )
        for number, row in enumerate(demo_tables.handshakes)
    ]
    return dataclasses.replace(demo_tables, handshakes=handshakes)


@pytest.fixture(scope="module")
def rolled_networks(with_networks: Tables) -> RolledUp:
    return capture.roll_up(with_networks, "demo.tlstax", host="db1")


@pytest.fixture(scope="module")
def data(rolled_networks: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("networks")
    adding.add(rolled_networks, made)
    return made


def rows_of(rolled: RolledUp, tier: str) -> list[columns.ClientNet]:
    rows = rolled.rows[tier][columns.ClientNet]
    return [row for row in rows if isinstance(row, columns.ClientNet)]


@pytest.mark.parametrize("tier", TIERS)
def test_each_handshake_is_counted_once(
    rolled_networks: RolledUp, with_networks: Tables, tier: str
) -> None:
    rows = rows_of(rolled_networks, tier)
    served = [row for row in with_networks.handshakes if row.side != "client"]
    assert sum(row.connection_count for row in rows) == len(served) > 100
    assert sum(row.full_count + row.resumed_count for row in rows) == len(served)
    of_interval = Counter(row.start_wall_ns for row in rows)
    assert max(of_interval.values()) <= NETWORKS_MOST + 1


def test_the_largest_networks_have_rows_and_the_rest_one(
    rolled_networks: RolledUp, with_networks: Tables
) -> None:
    expected = Counter(
        row.client_network for row in with_networks.handshakes if row.side != "client"
    )
    found = {row.network: row.connection_count for row in rows_of(rolled_networks, "1h")}
    apart = dict(sorted(expected.items(), key=lambda one: (-one[1], one[0]))[:NETWORKS_MOST])
    assert len(expected) > NETWORKS_MOST + 1
    assert found == apart | {OTHERS: sum(expected.values()) - sum(apart.values())}


def test_a_watch_writes_the_same(
    data: Path, with_networks: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = tmp_path / "watch"
    Watching(watched, with_networks).all()
    query = (
        "SELECT network, SUM(connection_count) AS n, SUM(full_count) AS f, SUM(resumed_count) AS r "
        "FROM client_net GROUP BY network ORDER BY network"
    )
    answers = []
    for place in (data, watched):
        assert (
            main(["fleet", "sql", query, "--data", str(place), "--tier", "1h", "--json", "-"]) == 0
        )
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert len(answers[0]) == NETWORKS_MOST + 1


def test_without_networks_there_is_no_file_of_them(demo_tables: Tables, tmp_path: Path) -> None:
    Watching(tmp_path / "watch", demo_tables).all()
    adding.add(capture.roll_up(demo_tables, "demo.tlstax", host="db1"), tmp_path / "data")
    assert list(tmp_path.glob("*/tier=1h/table=handshake/*/*/*.parquet"))
    assert not list(tmp_path.glob("*/tier=*/table=client_net"))


def explained(data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    assert main(["fleet", "explain", "db1", "--data", str(data), "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["fleet", "explain", "db1", "--data", str(data)]) == 0
    return document, capsys.readouterr().out


def test_explain_says_which_clients_never_resume(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, printed = explained(data, capsys)
    lines = {line["network"]: line for line in document["networks"]}
    assert (lines[RESUMES]["full_count"], lines[RESUMES]["never_resumes"]) == (0, False)
    assert (lines[NEVER]["resumed_count"], lines[NEVER]["never_resumes"]) == (0, True)
    rare = min(lines.values(), key=lambda line: line["full_count"] or 1 << 62)
    assert rare["full_count"] < 20
    assert not rare["never_resumes"], "too few to say so"
    assert f"{NEVER} !" in printed
    assert f"{RESUMES} !" not in printed
    assert "never resumes" in printed


def test_explain_has_no_networks_where_none_were_recorded(
    rolled: RolledUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adding.add(rolled, tmp_path)
    document, printed = explained(tmp_path, capsys)
    assert document["networks"] == []
    assert "networks" not in printed


def test_memory_is_bounded_and_nothing_is_lost() -> None:
    networks: dict[client_networks.Key, client_networks.Numbers] = {}
    for number in range(3 * client_networks.KEPT_MOST):
        mine = networks.setdefault((0, f"n{number}"), defaultdict(int))
        mine["connection_count"] += 1 + number % 7
        client_networks.bound(networks)
        assert len(networks) <= client_networks.KEPT_MOST
    total = sum(numbers["connection_count"] for numbers in networks.values())
    assert total == sum(1 + number % 7 for number in range(3 * client_networks.KEPT_MOST))
    assert networks[0, OTHERS]["connection_count"] > 0

# SPDX-License-Identifier: GPL-2.0-only
"""Times of the shorter tiers in steps: nothing is lost in an hour, and little is moved."""

from typing import Any

import numpy as np
import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import Handshake, Ledger
from tlstax.analysis.fleet.rollup.steps import STEP_NS, in_steps
from tlstax.analysis.fleet.store import parquet_files

STATES = Ledger._fields[5:]
LARGEST = (1 << 62) - 1


def ledger(values: list[list[int]], phase: str = "command", host: str = "db1") -> list[Ledger]:
    """A row for each interval; the states in order."""
    return [
        Ledger(host, number * 10_000_000_000, 7, "connection", phase, *row)
        for number, row in enumerate(values)
    ]


def stepped(rows: list[Ledger], tier: str = "10s") -> list[Ledger]:
    made = in_steps(tier, Ledger, parquet_files.table_of(Ledger, rows))
    assert made.schema == parquet_files.schema_of(Ledger)
    return [Ledger(**row) for row in made.to_pylist()]


@pytest.mark.parametrize("tier", ["10s", "1m"])
def test_sums_are_exact_and_times_move_by_less_than_a_step(tier: str) -> None:
    random = np.random.default_rng(3)
    rows = []
    for host in ("db1", "db2"):
        for phase in ("command", "idle", "sign"):
            values = random.integers(0, 10 ** random.integers(1, 10, (90, 7)))
            rows += ledger(values.tolist(), phase, host)
    found = stepped(rows, tier)
    for name in STATES:
        sums: dict[tuple[str, str], list[int]] = {}
        for exact, made in zip(sorted(rows), sorted(found), strict=True):
            assert exact[:5] == made[:5]
            sides = sums.setdefault((exact.host, exact.phase), [0, 0])
            sides[0] += getattr(exact, name)
            sides[1] += getattr(made, name)
            assert 0 <= sides[0] - sides[1] < STEP_NS
            assert getattr(made, name) >= 0
        assert all(exact == made for exact, made in sums.values())


def test_all_but_the_last_are_in_steps() -> None:
    found = stepped(ledger([[300] * 7, [300] * 7, [3] * 7]))
    assert [row.on_cpu_ns for row in found] == [256, 256, 91]
    assert [row.blocked_other_ns for row in found] == [256, 256, 91]


def test_the_largest_times_stay_what_they_are() -> None:
    found = stepped(ledger([[LARGEST] * 7] * 5))
    assert all(-STEP_NS < row.on_cpu_ns - LARGEST < STEP_NS * 5 for row in found)
    assert sum(row.on_cpu_ns for row in found) == 5 * LARGEST


@pytest.mark.parametrize("tier", ["10s", "1m"])
def test_handshakes_of_each_kind_have_their_own_steps(tier: str) -> None:
    numbers = [name for name in Handshake._fields[8:] if name.endswith("_ns")]
    plain: dict[str, Any] = dict.fromkeys(Handshake._fields, 1)
    plain |= dict.fromkeys(Handshake._fields[3:8], "") | dict.fromkeys(numbers, 300)
    rows = [
        Handshake(**plain | {"host": "db1", "start_wall_ns": at, "cipher": cipher})
        for cipher in ("a", "b")
        for at in range(3)
    ]
    made = in_steps(tier, Handshake, parquet_files.table_of(Handshake, rows)).to_pylist()
    assert len(numbers) == 10
    for name in numbers:
        assert [row[name] for row in made] == [256, 256, 388] * 2
    assert {row["handshake_count"] for row in made} == {1}


def test_whole_hours_and_other_tables_are_exact() -> None:
    rows = parquet_files.table_of(Ledger, ledger([[300] * 7] * 3))
    assert in_steps("1h", Ledger, rows) is rows
    for tier in ("10s", "1m"):
        assert in_steps(tier, columns.Interval, rows) is rows
    empty = parquet_files.table_of(Ledger, [])
    assert in_steps("10s", Ledger, empty) is empty

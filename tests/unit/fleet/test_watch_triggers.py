# SPDX-License-Identifier: GPL-2.0-only
"""Triggers of a watch: each fires at its own change, once, and not without it."""

import re

import pytest

from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.continuous.triggers import (
    BEFORE,
    BEFORE_LEAST,
    CLOSURE,
    MINUTE_NS,
    OUTCOME,
    P99,
    RECENT,
    TLS_CPU,
    Fired,
    Triggers,
)
from tlstax.analysis.fleet.histograms import bucket
from tlstax.analysis.fleet.rollup import intervals
from tlstax.analysis.fleet.rollup.intervals import WALL, Sums

MS = 1_000_000


def minute(
    number: int,
    wall_ns: float = 4 * MS,
    handshakes: int = 200,
    failures: int = 0,
    tls_share: float = 0.1,
    closure: float = 1.0,
    *,
    has_ledger: bool = True,
) -> Sums:
    """A window that is a minute long; the server uses half of a CPU."""
    start_ns, cpu_ns = number * MINUTE_NS, 30 * SECOND_NS
    sums = intervals.no_sums()
    sums.interval[start_ns,].update(
        recorded_ns=60 * SECOND_NS,
        ledger_observed_ns=60 * SECOND_NS if has_ledger else 0,
        handshake_cpu_ns=round(tls_share * cpu_ns),
        process_cpu_ns=cpu_ns,
    )
    sums.ledger[start_ns, "connection", "command"]["on_cpu_ns"] = round(closure * cpu_ns)
    kinds = {"success": handshakes, "failure": failures}
    for outcome, count in kinds.items():
        if count:
            key = (start_ns, outcome, "TLSv1.3", "a", "b", "full")
            sums.handshake[key]["handshake_count"] = count
    latency = sums.phase_latency[start_ns, WALL]
    latency["ended_count"] = latency[str(bucket(wall_ns))] = handshakes
    return sums


def fired(changes: dict[str, object], minutes: int = 3 * RECENT, calm: int = BEFORE) -> list[Fired]:
    """What fires after `calm` minutes that are all alike."""
    triggers = Triggers()
    for number in range(calm):
        assert triggers.add(minute(number)) == []
    return [
        one
        for number in range(calm, calm + minutes)
        for one in triggers.add(minute(number, **changes))  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"wall_ns": 40 * MS}, [P99]),
        ({"wall_ns": 7 * MS}, []),
        ({"failures": 2}, [OUTCOME]),
        ({"closure": 0.9}, [CLOSURE]),
        ({"closure": 0.96}, []),
        ({"closure": 0.5, "has_ledger": False}, []),
        ({"tls_share": 0.25}, [TLS_CPU]),
        ({"tls_share": 0.15}, []),
        ({"tls_share": 0.4, "failures": 9, "wall_ns": 90 * MS}, [P99, OUTCOME, TLS_CPU]),
    ],
)
def test_a_change_fires_its_trigger_once(changes: dict[str, object], expected: list[str]) -> None:
    found = fired(changes)
    assert sorted(one.trigger for one in found) == sorted(expected)
    assert all(one.sentence.endswith(".") for one in found)


def test_nothing_fires_before_what_is_usual_is_known() -> None:
    assert fired({"wall_ns": 40 * MS, "failures": 9, "tls_share": 0.5}, 4, calm=10) == []


def test_what_goes_on_fires_again_after_an_hour() -> None:
    found = fired({"closure": 0.8}, 2 * BEFORE)
    assert [one.trigger for one in found] == [CLOSURE, CLOSURE]


def test_failures_that_were_there_before_are_not_new() -> None:
    triggers = Triggers()
    for number in range(3 * BEFORE):
        assert triggers.add(minute(number, failures=5)) == []


def test_a_sentence_says_how_long_it_looked_back() -> None:
    (one,) = fired({"wall_ns": 40 * MS}, calm=BEFORE_LEAST + RECENT)
    (minutes,) = re.findall(r" (\d+) minutes before", one.sentence)
    assert BEFORE_LEAST <= int(minutes) < BEFORE_LEAST + 2 * RECENT


def test_a_clock_that_was_set_back_silences_nothing() -> None:
    triggers, hours = Triggers(), 5 * 60
    found = [
        (number, one.trigger)
        for number in [*range(hours, hours + 2 * RECENT + BEFORE), *range(2 * BEFORE)]
        for one in triggers.add(minute(number, closure=0.8))
    ]
    assert {trigger for _, trigger in found} == {CLOSURE}
    assert len([number for number, _ in found if number < hours]) == 2

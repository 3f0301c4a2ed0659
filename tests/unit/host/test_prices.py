# SPDX-License-Identifier: GPL-2.0-only
"""The formula for the cost of a hit, against figures computed by hand."""

import pytest

from tlstax.collectors.host.probe_costs.prices import (
    Prices,
    Probe,
    call_ns,
    crossing_ns,
    hit_costs_ns,
    one_of_each,
)

PRICES = Prices(emulated_ns=400.0, stepped_ns=14_000.0, return_ns=230.0)
ENTRY = Probe(0x10, is_return=False, emulated=True)
RETURN = Probe(0x10, is_return=True, emulated=True)


@pytest.mark.parametrize(
    ("probes", "costs_ns"),
    [
        ([ENTRY], [400.0]),
        ([ENTRY._replace(emulated=False)], [14_000.0]),
        # A return probe traps where it is armed and again at the return.
        ([RETURN], [630.0]),
        ([RETURN._replace(emulated=False)], [14_230.0]),
        # On one instruction there is one trap, whichever probe comes first, and one return.
        ([ENTRY, RETURN], [400.0, 230.0]),
        ([RETURN, ENTRY], [230.0, 400.0]),
        ([ENTRY, ENTRY, RETURN, RETURN], [400.0, 0.0, 230.0, 0.0]),
        ([RETURN, RETURN], [630.0, 0.0]),
        # Elsewhere each pays for itself.
        ([ENTRY, RETURN._replace(place=0x20)], [400.0, 630.0]),
    ],
)
def test_a_shared_trap_is_paid_once(probes: list[Probe], costs_ns: list[float]) -> None:
    assert hit_costs_ns(PRICES, probes) == costs_ns


def test_a_crossing_meets_one_exit_of_several() -> None:
    inside = [Probe(place, is_return=False, emulated=place != 0x40) for place in (0x20, 0x30, 0x40)]
    probes = [("enter", ENTRY), *(("exit", probe) for probe in inside)]
    assert crossing_ns(PRICES, probes[:3]) == 400.0 + 400.0
    assert crossing_ns(PRICES, probes) == 400.0 + 14_000.0, "the most expensive one counts"
    assert crossing_ns(PRICES, [("enter", ENTRY), ("exit", RETURN)]) == 630.0
    assert crossing_ns(PRICES, []) == 0.0
    assert one_of_each([("enter", 2.0), ("enter", 3.0), ("exit", 5.0)]) == 8.0


def test_a_call_enters_one_of_a_function_s_bodies() -> None:
    assert call_ns([400.0, 800.0], hits=3.0) == 1_800.0
    assert call_ns([], hits=3.0) == 0.0

# SPDX-License-Identifier: GPL-2.0-only
"""What a hit costs in a server, by pairs of stretches (hit_price.c): its value and its interval."""

import ctypes
from statistics import median
from typing import Any

import numpy as np
import pytest

from tlstax.collectors.capture.order_statistics import median_bounds
from tlstax.tests.unit.recorder.hit_price_in_c import (
    BODY_NS,
    LOOP_NS,
    TRUE_NS,
    Arm,
    HitPrice,
    arm,
    library,
    measured,
)

PAIRS, REPETITIONS, LEAST, LEAST_USED = 24, 1500, 0.93, 0.9
SCATTERS = (0.01, 0.04, 0.08)
"""Of the CPU time for a send in a stretch; 3 to 5 % were seen."""
QUARTER = 0.25
FAULTS = {
    "hits of all sends": ("extra_ns / hits;", "extra_ns / with->sends;"),
    "a factor of 1.25": ("extra_ns / hits;", "1.25 * extra_ns / hits;"),
    "the longer stretch": ("without->cpu_ns * part", "without->cpu_ns"),
    "an interval of 75 %": ("LEVEL 0.05", "LEVEL 0.25"),
}


def added(price: HitPrice, without: Arm, with_traps: Arm) -> bool:
    arms = ctypes.byref(without), ctypes.byref(with_traps)
    return bool(library().hit_price_add(ctypes.byref(price), *arms))


def covered(scatter: float, count: int, loaded: Any = None) -> tuple[float, float]:
    """How often the interval holds the true price: of all, and of those that are used."""
    generator = np.random.default_rng(7)
    found = [measured(generator, count, scatter, loaded=loaded) for _ in range(REPETITIONS)]
    right = [each.hit.low <= TRUE_NS <= each.hit.high for each in found]
    used = [one for one, each in zip(right, found, strict=True) if each.is_measured]
    return sum(right) / len(right), sum(used) / len(used) if used else 1.0


@pytest.mark.parametrize("count", [8, 16, PAIRS, 32])
@pytest.mark.parametrize("scatter", SCATTERS)
def test_its_interval_covers_what_it_claims(scatter: float, count: int) -> None:
    of_all, of_used = covered(scatter, count)
    assert of_all >= LEAST
    assert of_used >= LEAST_USED, "few are used because they are wrong"


def test_a_server_that_computes_little_has_dearer_hits() -> None:
    usual = library().usual_in_situ
    usual.restype, usual.argtypes = ctypes.c_double, [ctypes.c_double]
    assert [usual(cpus) for cpus in (0.0, 0.25, 0.625, 1.0, 64.0)] == [4.5, 4.5, 3.75, 3.0, 3.0]


def test_median_and_interval_are_those_of_the_other_rooms() -> None:
    for count in range(8, 33):
        price = measured(np.random.default_rng(count), count, 0.04)
        pairs = sorted(price.hits_ns[:count])
        low_ns, high_ns = median_bounds(pairs)
        assert price.hit.value == pytest.approx(median(pairs))
        assert (price.hit.low, price.hit.high) == pytest.approx((low_ns, high_ns))


def test_the_factor_is_of_the_trap_without_its_program() -> None:
    price = HitPrice()
    for _ in range(16):
        assert added(price, arm(False, 17_000.0, 900.0), arm(True, 17_000.0, 2000.0))
    assert price.hit.value == pytest.approx(TRUE_NS)
    assert price.factor == pytest.approx((TRUE_NS - BODY_NS) / LOOP_NS)
    assert price.is_measured


def test_probes_that_are_on_in_both_do_not_count() -> None:
    """Handshakes are recorded without the dense probes, too."""
    price = HitPrice()
    for _ in range(8):
        without, both = arm(False, 17_000.0), arm(True, 17_000.0)
        for one in (without, both):
            one.hits += 500
            one.cpu_ns += 500 * 9000
            one.loop_ns += 500 * 4000
            one.bodies_ns += 500 * 1000
        assert added(price, without, both)
    assert price.hit.value == pytest.approx(TRUE_NS)
    assert price.factor == pytest.approx((TRUE_NS - BODY_NS) / LOOP_NS)


def test_too_little_is_no_measurement() -> None:
    """A stretch of an idle server; one whose probes nobody crossed; few pairs."""
    price = HitPrice()
    assert not added(price, arm(False, 17_000.0, 199.0), arm(True, 17_000.0))
    assert not added(price, arm(False, 17_000.0), arm(True, 17_000.0, 199.0))
    assert not added(price, arm(False, 17_000.0), arm(False, 17_000.0))
    assert price.pairs_count == 0
    for _ in range(7):
        assert added(price, arm(False, 17_000.0), arm(True, 17_000.0))
    assert price.hit.value == 0
    for _ in range(8):
        assert added(price, arm(False, 17_000.0), arm(True, 17_000.0))
    assert price.hit.value == pytest.approx(TRUE_NS)
    assert not price.is_measured
    for _ in range(17):
        assert added(price, arm(False, 17_000.0), arm(True, 17_000.0))
    assert not added(price, arm(False, 17_000.0), arm(True, 17_000.0)), "there is no more room"
    assert price.pairs_count == 32


def test_what_scatters_more_than_a_quarter_is_not_used() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        price = measured(generator, PAIRS, 0.12)
        is_certain = (price.hit.high - price.hit.low) / 2 <= QUARTER * price.hit.value
        assert price.is_measured == (is_certain and price.hit.low > 0 and price.factor > 0)
    assert sum(measured(generator, PAIRS, 0.3).is_measured for _ in range(200)) < 10


def test_nothing_is_made_of_probes_that_cost_nothing() -> None:
    generator = np.random.default_rng(5)
    for _ in range(200):
        assert not measured(generator, PAIRS, 0.04, true_ns=0.0).is_measured


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_wrong_estimator_is_noticed(fault: tuple[str, str]) -> None:
    of_all, _ = covered(0.01, PAIRS, library(*fault))
    assert of_all < LEAST

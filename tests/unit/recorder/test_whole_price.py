# SPDX-License-Identifier: GPL-2.0-only
"""What recording costs for a send, by pairs of stretches (whole_price.c).

The server is arithmetic: a send costs it more while it is recorded, and its client, too; the prices
of hits and events say something else.
"""

import ctypes
from typing import Any

import numpy as np
import pytest

from tlstax.tests.unit.recorder.hit_price_in_c import (
    PAIRS_MOST,
    SEND_NS,
    Median,
    library,
    send_costs,
)

SERVER_NS, HOST_NS = 8000.0, 11_000.0
"""More for a send, truly."""
SAID_NS, NEIGHBOURS_NS, EVENTS = 6000.0, 400.0, 5.0
"""What prices say of the same, and the server's events for a send."""
CLIENT_NS = 15_000.0
PAIRS, REPETITIONS, LEAST = 22, 1000, 0.93
SENDERS_MOST = 64
NONE, PERHAPS, SURELY = range(3)
WITH_CLIENTS = 1.4
"""Of what a server pays, what it and its clients do, where nothing else is known."""
FAULTS = {
    "the longer stretch": ("without->cpu_ns * part", "without->cpu_ns"),
    "the host's is the clients'": ("(server_ns + clients_ns) /", "clients_ns /"),
    "twice the events": ("/ events;", "/ (2 * events);"),
    "a ratio upside down": (
        "server_told_ns / price->server_said_ns;",
        "server_said_ns / price->server_told_ns;",
    ),
    "what both pay is what clients do": ("host_told_ns - price->server_told_ns", "host_told_ns"),
    "weights upside down": (
        "one.value * other.variance + other.value * one.variance",
        "one.value * one.variance + other.value * other.variance",
    ),
    "an interval of 75 %": ("LEVEL 0.05", "LEVEL 0.25"),
}


class Arm(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in ("sends", "cpu_ns", "clients_ns", "events", "said_ns", "neighbours_said_ns")
    )


class WholePrice(ctypes.Structure):
    _fields_ = (
        ("pairs_count", ctypes.c_uint32),
        ("server_ns", ctypes.c_double * PAIRS_MOST),
        ("host_ns", ctypes.c_double * PAIRS_MOST),
        ("said_ns", ctypes.c_double * PAIRS_MOST),
        ("others_ns", ctypes.c_double * PAIRS_MOST),
        ("events", ctypes.c_double * PAIRS_MOST),
        ("without_ns", ctypes.c_double * PAIRS_MOST),
        ("clients", ctypes.c_int),
        ("in_situ", ctypes.c_double),
        ("server", Median),
        ("host", Median),
        ("server_said_ns", ctypes.c_double),
        ("host_said_ns", ctypes.c_double),
        ("server_told_ns", ctypes.c_double),
        ("host_told_ns", ctypes.c_double),
        ("send_ns", ctypes.c_double),
        ("ratio", ctypes.c_double),
        ("event_ns", ctypes.c_double),
        ("is_server_used", ctypes.c_bool),
        ("is_host_used", ctypes.c_bool),
    )


class Rates(ctypes.Structure):
    _fields_ = (
        ("pairs_count", ctypes.c_uint32),
        ("slower", ctypes.c_double * PAIRS_MOST),
        ("sends", ctypes.c_double * PAIRS_MOST * SENDERS_MOST),
        ("all", ctypes.c_double * PAIRS_MOST),
        ("silent", ctypes.c_uint32 * SENDERS_MOST),
    )


def are_clients(
    slower: float, *senders: float, count: int = PAIRS, scatter: float = 0.0, silent: int = 0
) -> int:
    """Of senders, by how often they send for one of the target, as a ratio of both stretches."""
    generator, rates = np.random.default_rng(2), Rates(count)
    for pair in range(count):
        rates.slower[pair] = slower + generator.normal(0, 0.02)
        for number, sender in enumerate(senders):
            rates.sends[number][pair] = sender + generator.normal(0, scatter)
        own = [rates.sends[number][pair] for number in range(len(senders))]
        rates.all[pair] = np.mean(own) if own else 1.0
    rates.silent[0] = silent
    return int(library().are_clients(ctypes.byref(rates), len(senders)))


def arm(
    is_on: bool, sends: float, send_ns: float = SEND_NS, client_ns: float = CLIENT_NS, by: float = 0
) -> Arm:
    """A stretch; `by` is what rare probes, which are on in both, cost for a send and say so."""
    server_ns = send_ns + is_on * SERVER_NS + by
    client_ns += is_on * (HOST_NS - SERVER_NS)
    said_ns, neighbours_ns = is_on * SAID_NS + by, is_on * NEIGHBOURS_NS
    each = (1, server_ns, client_ns, is_on * EVENTS, said_ns, neighbours_ns)
    return Arm(*(sends * value for value in each))


def added(price: WholePrice, without: Arm, with_ledger: Arm, loaded: Any = None) -> bool:
    take = (loaded or library()).whole_price_add
    return bool(take(ctypes.byref(price), ctypes.byref(without), ctypes.byref(with_ledger)))


def measured(
    generator: np.random.Generator, scatter: float, pairs_count: int = PAIRS, loaded: Any = None
) -> WholePrice:
    price = WholePrice(clients=SURELY)
    costs = send_costs(generator, 2 * pairs_count, scatter)
    clients = generator.normal(CLIENT_NS, CLIENT_NS * scatter, 2 * pairs_count)
    for pair in range(pairs_count):
        places = 2 * pair + pair % 2, 2 * pair + 1 - pair % 2
        off, on = (
            arm(is_on, generator.uniform(1000, 3000), costs[place], clients[place])
            for is_on, place in zip((False, True), places, strict=True)
        )
        assert added(price, off, on, loaded)
    (loaded or library()).whole_price_estimate(ctypes.byref(price))
    return price


def certain(
    sends: float = 2000.0, by: float = 0.0, count: int = 16, clients: int = SURELY
) -> WholePrice:
    price = WholePrice(clients=clients)
    for _ in range(count):
        assert added(price, arm(False, sends, by=by), arm(True, 1500.0, by=by))
    library().whole_price_estimate(ctypes.byref(price))
    return price


def is_right(price: WholePrice) -> bool:
    elsewhere_ns = (HOST_NS - SERVER_NS) / EVENTS
    found = price.server.value, price.host.value, price.ratio, price.event_ns, price.send_ns
    wanted = SERVER_NS, HOST_NS, SERVER_NS / SAID_NS, elsewhere_ns, SEND_NS
    return found == pytest.approx(wanted)


def test_what_is_said_becomes_what_was_measured() -> None:
    price = certain()
    assert is_right(price)
    assert price.is_server_used
    assert price.is_host_used
    assert SAID_NS * price.ratio == pytest.approx(SERVER_NS)
    assert SERVER_NS + EVENTS * price.event_ns == pytest.approx(HOST_NS)


def test_what_is_on_in_both_does_not_count() -> None:
    price = certain(by=3000.0)
    assert (price.server.value, price.ratio) == pytest.approx((SERVER_NS, SERVER_NS / SAID_NS))


@pytest.mark.parametrize("scatter", [0.01, 0.04, 0.08])
def test_its_intervals_cover_what_they_claim(scatter: float) -> None:
    generator = np.random.default_rng(11)
    found = [measured(generator, scatter) for _ in range(REPETITIONS)]
    assert np.mean([p.server.low <= SERVER_NS <= p.server.high for p in found]) >= LEAST
    assert np.mean([p.host.low <= HOST_NS <= p.host.high for p in found]) >= LEAST
    told = np.array([p.server_told_ns for p in found])
    assert np.quantile(np.abs(told / SERVER_NS - 1), 0.95) <= 0.25 + 2 * max(0, scatter - 0.04)


def test_few_pairs_are_not_used() -> None:
    assert certain(count=7).server.value == 0
    assert not certain(count=15).is_server_used
    assert certain(count=16).is_server_used


def test_without_clients_the_host_is_not_used() -> None:
    price = certain(clients=NONE)
    assert price.is_server_used
    assert not price.is_host_used


@pytest.mark.parametrize("slower", [1.1, 1.3])
def test_who_sends_by_time_is_no_client(slower: float) -> None:
    """Clients send as often for an answer; who works for itself as often in a second."""
    assert are_clients(slower, 1.0, 1.0) == SURELY
    assert are_clients(slower, 1.0, scatter=0.02) == SURELY
    assert are_clients(slower, 1.0, slower) == NONE
    assert are_clients(slower, *[1.0] * 50, scatter=0.3) == PERHAPS, "one of many seems not to be"
    assert are_clients(slower, slower, scatter=0.02) == NONE


@pytest.mark.parametrize(("slower", "rate"), [(1.307, 1.1518), (1.165, 1.0816)])
def test_who_competes_for_the_same_cpus_is_no_client(slower: float, rate: float) -> None:
    """It sends less often then, too; both were seen."""
    assert are_clients(slower, rate) == NONE
    assert are_clients(slower, rate, scatter=0.02) != SURELY


def test_who_it_is_has_to_be_sure() -> None:
    assert are_clients(1.02, 1.0) == PERHAPS, "a send takes as long in both"
    assert are_clients(1.2, 1.0, scatter=0.2) == PERHAPS, "they scatter by as much"
    assert are_clients(1.2, 1.0, count=7) == NONE
    assert are_clients(1.2) == PERHAPS, "they have ended"
    assert are_clients(1.2, 1.0, silent=6) == SURELY
    assert are_clients(1.2, 1.0, silent=7) == PERHAPS, "it rarely sends"


def test_a_busy_host_leaves_what_the_server_pays() -> None:
    """Clients whose CPU time tells nothing pay the usual part of it."""
    price, generator = WholePrice(clients=SURELY), np.random.default_rng(5)
    for _ in range(PAIRS):
        arms = arm(False, 2000.0), arm(True, 2000.0)
        for one in arms:
            one.clients_ns += 2000.0 * generator.exponential(600_000.0)
        assert added(price, *arms)
    library().whole_price_estimate(ctypes.byref(price))
    assert price.server_told_ns == pytest.approx(SERVER_NS)
    assert price.host_told_ns == pytest.approx(WITH_CLIENTS * SERVER_NS, rel=0.05)


def test_perhaps_clients_pay_the_usual_part() -> None:
    price = certain(clients=PERHAPS)
    assert price.is_host_used
    assert price.host_told_ns == pytest.approx(WITH_CLIENTS * SERVER_NS)
    assert SERVER_NS + EVENTS * price.event_ns == pytest.approx(price.host_told_ns)


@pytest.mark.parametrize("clients", [NONE, PERHAPS])
def test_where_sends_tell_nothing_prices_are_told(clients: int) -> None:
    """They are of all that is paid: of the server's alone where nobody else is there."""
    price, generator = WholePrice(clients=clients), np.random.default_rng(9)
    for _ in range(PAIRS):
        off, on = arm(False, 200.0), arm(True, 200.0)
        for one in (off, on):
            one.cpu_ns += 200.0 * generator.normal(0, 100 * SERVER_NS)
        assert added(price, off, on)
    library().whole_price_estimate(ctypes.byref(price))
    prices_ns = (SAID_NS + NEIGHBOURS_NS) / WITH_CLIENTS if clients else SAID_NS
    assert price.server_told_ns == pytest.approx(prices_ns, rel=0.05)
    assert price.host_told_ns == pytest.approx(SAID_NS + NEIGHBOURS_NS, rel=0.05)


@pytest.mark.parametrize("truth", [0.6, 1.0, 1.5])
def test_in_a_storm_what_is_told_is_nearer_than_prices(truth: float) -> None:
    """Sends scatter by more than recording costs; prices are as wrong as they have been seen."""
    generator, told, alone = np.random.default_rng(7), [], []
    for _ in range(REPETITIONS):
        price = WholePrice()
        for _ in range(PAIRS):
            on, off = arm(True, 200.0), arm(False, 200.0)
            on.said_ns = 200.0 * SERVER_NS / truth
            for one in (on, off):
                one.cpu_ns += 200.0 * generator.normal(0, SERVER_NS)
            assert added(price, off, on)
        library().whole_price_estimate(ctypes.byref(price))
        told.append(price.server_told_ns)
        alone.append(price.server.value)
    errors = [np.sqrt(np.mean((np.array(values) / SERVER_NS - 1) ** 2)) for values in (told, alone)]
    assert errors[0] <= 1.1 * errors[1]
    assert abs(np.median(told) / SERVER_NS - 1) <= max(0.02, 0.7 * abs(1 / truth - 1))


def test_what_recording_seems_to_save_is_not_used() -> None:
    price = WholePrice()
    for _ in range(PAIRS):
        assert added(price, arm(False, 2000.0, SEND_NS + 2 * SERVER_NS), arm(True, 2000.0))
    library().whole_price_estimate(ctypes.byref(price))
    assert price.server.value < 0
    assert not price.is_server_used
    assert not price.is_host_used


def by_weights(*estimates: tuple[float, float]) -> tuple[float, float]:
    """Mean and variance of values with theirs."""
    values, weights = zip(*((value, 1 / variance) for value, variance in estimates), strict=True)
    return float(np.average(values, weights=weights)), 1 / sum(weights)


def test_what_is_told_of_both_is_by_the_weights_that_are_said() -> None:
    """In a storm with sure clients, where what was measured and prices both count."""
    price, generator = WholePrice(clients=SURELY), np.random.default_rng(13)
    for _ in range(PAIRS):
        off, on = arm(False, 200.0), arm(True, 200.0)
        for one in (off, on):
            speed = generator.normal(0, SERVER_NS)
            one.cpu_ns += 200.0 * speed
            one.clients_ns += 200.0 * (speed + generator.normal(0, SERVER_NS))
        assert added(price, off, on)
    library().whole_price_estimate(ctypes.byref(price))
    variances = [((m.high - m.low) / 2 / 1.96) ** 2 for m in (price.server, price.host)]
    said_ns = (SAID_NS + NEIGHBOURS_NS) / WITH_CLIENTS
    server, variance = by_weights((price.server.value, variances[0]), (said_ns, said_ns**2 / 4))
    by_server = WITH_CLIENTS * server, WITH_CLIENTS**2 * variance + (0.1 * server) ** 2
    host, _ = by_weights((price.host.value, variances[1]), by_server)
    assert (price.server_told_ns, price.host_told_ns) == pytest.approx((server, host))


def test_clients_that_seem_to_save_pay_nothing() -> None:
    price = WholePrice(clients=SURELY)
    for _ in range(PAIRS):
        on = arm(True, 2000.0)
        on.clients_ns -= 2000.0 * HOST_NS
        assert added(price, arm(False, 2000.0), on)
    library().whole_price_estimate(ctypes.byref(price))
    assert price.host_told_ns == price.server_told_ns
    assert price.event_ns == 0


def test_events_of_other_processes_are_not_the_servers() -> None:
    price, generator = WholePrice(clients=PERHAPS), np.random.default_rng(1)
    for _ in range(PAIRS):
        on = arm(True, 200.0)
        on.neighbours_said_ns *= 100
        on.cpu_ns += 200.0 * generator.normal(0, 10 * SERVER_NS)
        assert added(price, arm(False, 200.0), on)
    library().whole_price_estimate(ctypes.byref(price))
    assert price.server_told_ns <= max(price.server.value, SAID_NS)


def test_too_little_is_no_measurement() -> None:
    price = WholePrice()
    assert not added(price, arm(False, 39.0), arm(True, 2000.0))
    assert not added(price, arm(False, 2000.0), arm(True, 39.0))
    assert not added(price, arm(False, 2000.0), arm(False, 2000.0)), "nothing was said"
    for _ in range(PAIRS_MOST):
        assert added(price, arm(False, 2000.0), arm(True, 2000.0))
    assert not added(price, arm(False, 2000.0), arm(True, 2000.0)), "there is no more room"
    assert price.pairs_count == PAIRS_MOST


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_wrong_estimator_is_noticed(fault: tuple[str, str]) -> None:
    loaded, price = library(*fault), WholePrice()
    for _ in range(16):
        added(price, arm(False, 2000.0), arm(True, 1500.0), loaded)
    loaded.whole_price_estimate(ctypes.byref(price))
    generator = np.random.default_rng(11)
    found = [measured(generator, 0.04, loaded=loaded) for _ in range(REPETITIONS)]
    covered = np.mean([p.server.low <= SERVER_NS <= p.server.high for p in found])
    assert not is_right(price) or covered < LEAST

# SPDX-License-Identifier: GPL-2.0-only
"""What a prediction makes of caches, on a recording whose costs are round numbers."""

from dataclasses import replace

import numpy as np
import pytest

from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.whatif import forecast
from tlstax.analysis.whatif.forecast import KERNEL, State
from tlstax.collectors.capture.micro_costs import Cost, HandshakeCost, KeyCosts, MicroCosts


def cost(us: float) -> Cost:
    return Cost(us * 1000, us * 1000, us * 1000)


def key(sign: float, server: float, resumed: float) -> KeyCosts:
    """In us: a client takes as much as the server."""
    full, again = (HandshakeCost(cost(us), cost(us)) for us in (server, resumed))
    return KeyCosts(cost(sign), cost(0.001), full, again, cost(100))


LONG, SHORT = key(4000, 5000, 500), key(300, 1300, 500)
COSTS = MicroCosts(
    "OpenSSL 3.0.19", "vm", "", "TLSv1.3", False, cost(40), cost(35), {"long": LONG, "short": SHORT}
)


def state(sign_us: float, rest_us: float) -> State:
    """A connection: its signature, the rest of its handshake, connecting 400 us, a query 200 us."""
    parts = dict.fromkeys(
        ("handshake_keygen", "handshake_derive", "handshake_verify", "handshake_certificate"), 0.0
    ) | {"handshake_sign": sign_us, "handshake_other": rest_us, KERNEL: 100.0}
    sources = ErrorSources({})
    arrays = {name: np.full(sources.size, us * 1000) for name, us in parts.items()}
    connection, query, client = (np.full(sources.size, ns) for ns in (400e3, 200e3, 9000e3))
    return State(
        sources=sources, parts=arrays, lump=np.sum(list(arrays.values()), axis=0),
        connection=connection,
        query=query, query_low=query, client=client, client_low=client,
        connections=1.0, queries=1.0, handshakes=1.0,
    )  # fmt: skip


def test_all_else_is_cheaper_with_a_shorter_signature_and_dearer_with_a_longer() -> None:
    now = state(4000, 1000)
    same = forecast.with_key(now, COSTS, LONG, LONG)
    assert same.less == pytest.approx(0)
    assert same.more == pytest.approx(0)
    shorter = forecast.with_key(now, COSTS, LONG, SHORT)
    # The rest of the handshake is as long with both keys: 1,000 us and the kernel's 100.
    low, high = (float(end[0]) / 1e3 for end in shorter.totals()[forecast.BY_PARTS])
    assert low == pytest.approx(300 + 1700 * (1 - 3.7 * 0.05), rel=1e-3)
    assert high == pytest.approx(300 + 1700 * (1 - 3.7 * 0.02), rel=1e-3)
    assert shorter.client_low[0] < shorter.client[0] < now.client[0]
    longer = forecast.with_key(state(300, 1000), COSTS, SHORT, LONG)
    low, high = (float(end[0]) / 1e3 for end in longer.totals()[forecast.BY_PARTS])
    assert low == pytest.approx(4000 + 1700 * (1 + 3.7 * 0.02), rel=1e-3)
    assert high == pytest.approx(4000 + 1700 * (1 + 3.7 * 0.05), rel=1e-3)


def test_what_a_resumed_handshake_saves_is_as_much_dearer_as_the_rest_of_it() -> None:
    # The signature takes what it takes in a loop, and the rest 1.5 times as much.
    now = state(300, 1500)
    then = forecast.with_resumption(now, COSTS, SHORT, 1.0)
    saved = float(now.lump[0] - then.lump[0]) / 1e3
    assert saved == pytest.approx(300 + (1300 - 500 - 300) * 1.5)
    # At the client either factor may hold.
    assert float(now.client[0] - then.client[0]) / 1e3 == pytest.approx(800)
    assert float(now.client_low[0] - then.client_low[0]) / 1e3 == pytest.approx(800 * 1.5)


def test_a_ticket_holds_the_certificate_of_a_client_that_has_one() -> None:
    now = state(300, 1500)
    parts = {**now.parts, "handshake_certificate": np.full_like(now.lump, 100e3)}
    now = replace(now, parts=parts, lump=now.lump + 100e3)
    for mutual, more_ns in ((False, 0.0), (True, 50e3)):
        costs = replace(COSTS, mutual=mutual)
        assert forecast.with_resumption(now, costs, SHORT, 1.0).more == pytest.approx(more_ns)


def test_connections_without_a_handshake_stay_as_they_are() -> None:
    now = state(4000, 1000)
    assert now.reached == pytest.approx(600e3)
    # Every second connection is in plaintext; then each has twenty queries.
    half = replace(now, connections=2.0, queries=2.0)
    assert half.reached == pytest.approx(200e3 + 200e3 * 10 / 11)
    many = replace(now, connections=2.0, queries=40.0)
    assert many.reached == pytest.approx(200e3 + 200e3 * 10 / 49)
    changed = forecast.with_key(many, COSTS, LONG, SHORT)
    assert changed.less == pytest.approx(3.7 * 0.05 * (1100e3 + 200e3 + 200e3 * 10 / 49))

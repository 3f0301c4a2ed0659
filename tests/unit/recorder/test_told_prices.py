# SPDX-License-Identifier: GPL-2.0-only
"""Whatever stretches measure, the reader takes the price: one that it refuses ends the recording.

A large result whose client works for itself cost 1.3 times what prices say, and a recording
without a budget ended before its first window.
"""

import ctypes

import numpy as np
import pytest

from tlstax.collectors.recording.stream.prices import whole_price_of
from tlstax.tests.unit.recorder.hit_price_in_c import library
from tlstax.tests.unit.recorder.test_whole_price import (
    NONE,
    PAIRS,
    PERHAPS,
    SURELY,
    WholePrice,
    added,
    arm,
)
from tlstax.tests.unit.recording.streams import struct

REPETITIONS = 400
SENDS = 200.0


def frame_of(price: WholePrice) -> bytes:
    """As whole_put() writes it."""
    return struct(
        "whole_price",
        pairs_count=price.pairs_count,
        send_ns=int(price.send_ns),
        server_ns=int(price.server.value),
        server_low_ns=int(price.server.low),
        server_high_ns=int(price.server.high),
        host_ns=int(price.host.value),
        host_low_ns=int(price.host.low),
        host_high_ns=int(price.host.high),
        server_said_ns=int(price.server_said_ns),
        host_said_ns=int(price.host_said_ns),
        server_told_ns=int(price.server_told_ns),
        host_told_ns=int(price.host_told_ns),
        ratio_ppm=int(price.ratio * 1e6) if price.ratio > 0 else 0,
        event_ns=int(price.event_ns),
        is_server_used=price.is_server_used,
        has_clients=price.clients == SURELY,
        is_host_used=price.is_host_used,
    )


@pytest.mark.parametrize("clients", [NONE, PERHAPS, SURELY])
@pytest.mark.parametrize("scatter", [0.01, 0.3, 10.0])
def test_the_reader_takes_whatever_is_told(clients: int, scatter: float) -> None:
    generator, used = np.random.default_rng(3), 0
    for _ in range(REPETITIONS):
        price = WholePrice(clients=clients)
        dearer, others = generator.uniform(-1, 4), generator.uniform(-20, 20)
        for _ in range(PAIRS):
            off, on = arm(False, SENDS), arm(True, SENDS)
            on.cpu_ns += SENDS * (8000.0 * dearer * generator.normal(1, scatter))
            on.clients_ns += SENDS * 3000.0 * generator.normal(0, scatter)
            on.neighbours_said_ns *= others
            assert added(price, off, on)
        library().whole_price_estimate(ctypes.byref(price))
        told = whole_price_of(frame_of(price))
        used += told.is_server_used
    assert used > 0.1 * REPETITIONS

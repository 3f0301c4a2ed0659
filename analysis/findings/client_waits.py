# SPDX-License-Identifier: GPL-2.0-only
"""Waits for the client while it connects, apart from waits for services, and in round trips.

A round trip is TCP's own least one (`tcpi_min_rtt`), which the kernel measures with segments that
it answers itself: how long a client computes or sleeps is not in it.
"""

import numpy as np

from tlstax.analysis.findings.window_metrics import (
    CONNECTING_PHASES,
    Blocks,
    Metric,
    Metrics,
    ratio,
)
from tlstax.analysis.statistics.units import Floats


def in_libraries(blocks: Blocks) -> tuple[str, ...]:
    """The series of waits in connecting whose stacks end in the C library.

    They count only if the stacks of most waits in handshakes, which are for the client, do not.
    """
    lost = blocks.sums("handshake:library_wait")[0]
    followed = blocks.sums("handshake:client", "handshake:other")[0]
    return ("connect:library_wait",) if followed > lost else ()


def not_client(blocks: Blocks) -> Floats:
    """Waits for the network while connecting that are not for the client."""
    return blocks.sums("connect:name_lookup", "connect:authentication", *in_libraries(blocks))


def awaited_ns(blocks: Blocks) -> Floats:
    """Waits for the client while connecting: of all units, then of each."""
    network = blocks.matching(
        lambda phase, state: phase in CONNECTING_PHASES and state == "blocked_network"
    )
    return np.maximum(0.0, blocks.sums(*network) - not_client(blocks))


def add_round_trips(found: Metrics, blocks: Blocks, connections: Floats) -> None:
    """The round trip to clients, and how many of them the server waits for a client to connect."""
    count = blocks.sums("sockets:round_trip_count")
    if not count[0]:
        found["client_rtt_ns"] = found["round_trips_count"] = Metric(None)
        return
    whole_ns = ratio(blocks.sums("sockets:round_trip_us"), count) * 1e3
    # A block in which no connection was read has the mean of all.
    rtt_ns = np.where(np.isnan(whole_ns), whole_ns[0], whole_ns)
    found["client_rtt_ns"] = blocks.metric(rtt_ns)
    found["round_trips_count"] = blocks.metric(
        ratio(ratio(awaited_ns(blocks), connections), rtt_ns)
    )

# SPDX-License-Identifier: GPL-2.0-only
"""A handshake as the kernel programs recorded it, as a row of the capture."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from socket import AF_INET, AF_INET6, AF_UNIX
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.recording.programs.ledger_layout import (
    OUTCOMES,
    HandshakeRecord,
    Network,
)
from tlstax.collectors.recording.tls_names import cipher_name, version_name

Bits = tuple[int, int]
"""Of the IPv4 and IPv6 addresses of clients that are recorded; of none: (0, 0)."""
NO_BITS: Final[Bits] = (0, 0)


def handshake_row(
    number: int,
    window: int,
    record: HandshakeRecord,
    bits: Bits = NO_BITS,
    *,
    is_detailed: bool = True,
) -> schema.Handshake:
    """The row of one handshake record, the `number`-th of its target.

    `is_detailed`: all of its operations were recorded from its beginning on.
    """
    state, phase = record.state_ns[:], record.phase_ns[:]
    details = phase[2:6] if is_detailed else (-1, -1, -1, -1)
    waits = (state[0], state[1], state[2], sum(state[3:]))
    if record.unfollowed:
        waits = (-1, -1, -1, -1)
    return schema.Handshake(
        number,
        window,
        record.tid,
        record.start_ns,
        record.end_ns,
        *waits,
        phase[1],
        details[0],
        details[1],
        details[2],
        details[3],
        record.call_count,
        record.network_wait_count,
        OUTCOMES[record.outcome],
        version_name(record.tls_version),
        cipher_name(record.cipher_id),
        record.group.decode("ascii", "replace") or "unknown",
        record.resumed if record.resumed in (0, 1) else None,
        {0: "client", 1: "server"}.get(record.is_server, "unknown"),
        network_name(record.network, bits) if any(bits) and record.is_server else "",
    )


def network_name(network: Network, bits: Bits) -> str:
    """A client's network as text."""
    address = bytes(network.address)
    if network.family == AF_INET:
        return str(IPv4Network((address[:4], bits[0]), strict=False))
    if network.family == AF_INET6:
        return str(IPv6Network((address, bits[1]), strict=False))
    return "unix" if network.family == AF_UNIX else "unknown"


def count_outcomes(handshakes: Iterable[schema.Handshake]) -> dict[str, int]:
    """Handshakes by outcome."""
    counts: dict[str, int] = {}
    for handshake in handshakes:
        counts[handshake.outcome] = counts.get(handshake.outcome, 0) + 1
    return counts

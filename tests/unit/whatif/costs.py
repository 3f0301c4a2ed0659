# SPDX-License-Identifier: GPL-2.0-only
"""Costs of a TLS library, computed."""

from tlstax.collectors.capture.micro_costs import (
    Cost,
    HandshakeCost,
    KeyCosts,
    MicroCosts,
    RecordCosts,
)


def cost(us: float) -> Cost:
    return Cost(us * 1000, us * 990, us * 1010)


def key(sign: float, verify: float, full: float, resumed: float, setup: float) -> KeyCosts:
    """Costs in us: of the server; a client takes as much."""
    return KeyCosts(
        cost(sign), cost(verify), HandshakeCost(cost(full), cost(full)),
        HandshakeCost(cost(resumed), cost(resumed)), cost(setup),
    )  # fmt: skip


def records(us: float, us_per_byte: float) -> RecordCosts:
    """Both ways alike."""
    curve = {size: cost(us + size * us_per_byte) for size in (64, 256, 1024, 4096, 16384)}
    return RecordCosts(curve, curve)


COSTS = MicroCosts(
    library="OpenSSL 3.0.19", hostname="vm", cpu_model="Intel(R) Xeon(R) Processor",
    tls_version="TLSv1.3", mutual=True, keygen=cost(40), derive=cost(35),
    keys={
        "rsa:2048": key(280, 22, 1200, 480, 860),
        "rsa:4096": key(3800, 66, 4900, 490, 870),
        "ec:p256": key(27, 70, 1080, 490, 900),
    },
    records={
        "AES256-GCM": records(0.7, 0.00025), "AES128-GCM": records(0.7, 0.0002),
        "CHACHA20-POLY1305": records(0.9, 0.0006), "AES256-CBC-SHA1": records(1.5, 0.0016),
    },
)  # fmt: skip

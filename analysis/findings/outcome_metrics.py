# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of how handshakes end, and of what they agree on."""

from typing import Final

from tlstax.analysis.findings.window_metrics import (
    CONNECTING_PHASES,
    Blocks,
    Metric,
    Metrics,
    exact,
    ratio,
)
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

PEER: Final = "peer_certificate"
"""The boundary of probes/libraries at which a server begins to check the client's certificate."""


def add_outcomes(found: Metrics, blocks: Blocks, served: Floats) -> None:
    """Handshakes that failed, and how far they had come, or were given up; old versions.

    `served`: the time that the server spent on connections, of all units and of each.
    """
    whole = blocks.sums("outcome:success", "outcome:failure", "outcome:abandoned")
    walls = blocks.sums("wall:success", "wall:failure", "wall:abandoned")
    shakes = blocks.sums(*blocks.matching(lambda phase, state: phase in HANDSHAKE_PHASES))
    for name, outcome in (("failed", "failure"), ("abandoned", "abandoned")):
        count = blocks.sums(f"outcome:{outcome}")
        found[f"{name}_count"] = exact(float(count[0]))
        found[f"{name}_share"] = blocks.metric(ratio(count, whole))
        part = ratio(blocks.sums(f"wall:{outcome}"), walls)
        found[f"{name}_time_share"] = blocks.metric(part * ratio(shakes, served))
    connecting = blocks.sums(*blocks.matching(lambda phase, state: phase in CONNECTING_PHASES))
    lost = ratio(blocks.sums("wall:failure", "wall:abandoned"), walls)
    found["lost_connecting_share"] = blocks.metric(lost * ratio(shakes, connecting))
    found["failed_hello_share"] = blocks.share("failed:hello", "failed:signed")
    found["failed_signed_share"] = blocks.share("failed:signed", "failed:hello")
    found["old_version_share"] = blocks.share("version:old", "version:current")
    found["tls12_share"] = blocks.share("version:1.2", "version:other")
    found["cbc_share"] = blocks.share("cipher:cbc", "cipher:other")


def add_sides(found: Metrics, part: Group, tables: Tables) -> None:
    """Which side ended handshakes that failed after the server's signature: the least of each.

    A server that got as far as the client's certificate had its own accepted. How often it did is
    counted for the whole recording, and those that did not fail may have been among them.
    """
    checks = [
        row.begun_count for row in tables.probes if (row.boundary, row.event) == (PEER, "enter")
    ]
    rows = tables.handshakes
    signed = sum(row.outcome == "failure" and row.sign_ns > 0 for row in rows)
    shares = {"client": Metric(None), "server": Metric(None)}
    if checks and signed and not part.runs:
        others = sum(row.outcome != "failure" for row in rows)
        shares["client"] = exact(min(max(sum(checks) - others, 0), signed) / signed)
        shares["server"] = exact(max(signed - sum(checks), 0) / signed)
    for name, share in shares.items():
        found[f"failed_{name}_share"] = share

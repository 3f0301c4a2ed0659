# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of how handshakes end, and of what they agree on."""

from tlstax.analysis.findings import failures
from tlstax.analysis.findings.window_metrics import Blocks, Metrics, exact, ratio
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES


def add_outcomes(found: Metrics, blocks: Blocks, served: Floats) -> None:
    """Handshakes that failed, and how far they had come, or were given up; old versions.

    `served`: the time that the server spent on connections, of all units and of each.
    """
    failed = ("outcome:failure", "outcome:abandoned")
    for name, series in zip(("failed_count", "abandoned_count"), failed, strict=True):
        found[name] = exact(float(blocks.sums(series)[0]))
    whole = blocks.sums("outcome:success", *failed)
    found["failed_share"] = blocks.metric(ratio(blocks.sums(*failed), whole))
    walls = blocks.sums("wall:failure", "wall:abandoned")
    part = ratio(walls, walls + blocks.sums("wall:success"))
    shakes = blocks.sums(*blocks.matching(lambda phase, state: phase in HANDSHAKE_PHASES))
    found["failed_time_share"] = blocks.metric(part * ratio(shakes, served))
    found["failed_hello_share"] = blocks.share("failed:hello", "failed:signed")
    found["failed_signed_share"] = blocks.share("failed:signed", "failed:hello")
    for name in ("alert", "client"):
        others = (f"failed_at:{one}" for one in failures.PLACES if one != name)
        found[f"failed_{name}_share"] = blocks.share(f"failed_at:{name}", *others)
    found["old_version_share"] = blocks.share("version:old", "version:current")
    found["tls12_share"] = blocks.share("version:1.2", "version:other")
    found["cbc_share"] = blocks.share("cipher:cbc", "cipher:other")

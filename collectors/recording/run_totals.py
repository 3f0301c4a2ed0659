# SPDX-License-Identifier: GPL-2.0-only
"""What the recorder counted in one run of an experiment, as evidence of what the run did."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tlstax.collectors.placement.model import Plan
from tlstax.collectors.recording.handshake_rows import count_outcomes
from tlstax.collectors.recording.windows import WindowTotals
from tlstax.workloads.results import RunTotals

_HANDSHAKE_ACTIONS: Final = ("handshake_call", "handshake_group", "handshake_free")


def tls_call_count(plan: Plan, hits: Sequence[int]) -> int:
    """Probe hits in the TLS library; a plaintext arm must not add to them.

    In a program that links it statically, the library's probes are recognised by their purpose.
    """
    tls = plan.library("tls")
    paths = {entry.path for entry in tls.objects} if tls and tls.linkage == "shared" else set()
    return sum(
        count
        for site, count in zip(plan.sites, hits, strict=True)
        if site.object.path in paths or site.action in _HANDSHAKE_ACTIONS
    )


def run_totals(
    windows: Sequence[WindowTotals], tls_calls: int, client_handshakes: int | None
) -> RunTotals:
    """The windows of one run, added up; `client_handshakes`: None where no client was recorded."""
    handshakes = [handshake for window in windows for handshake in window.handshakes]
    good = [handshake for handshake in handshakes if handshake.outcome == "success"]
    outcomes = count_outcomes(handshakes)
    phases: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    for window in windows:
        phases.update(window.phase_counts)
        losses.update(window.losses)
    return RunTotals(
        start_ns=windows[0].start_ns,
        end_ns=windows[-1].end_ns,
        handshake_count=len(good),
        handshake_failed_count=outcomes.get("failure", 0) + outcomes.get("abandoned", 0),
        resumed_count=sum(handshake.resumed == 1 for handshake in good),
        tls_call_count=tls_calls,
        lost_handshake_count=losses["handshake_ring_full"] + losses["handshake_map_full"],
        tls_versions=Counter(handshake.tls_version for handshake in good),
        ciphers=Counter(handshake.cipher for handshake in good),
        groups=Counter(handshake.group_name for handshake in good),
        phase_counts=dict(phases),
        client_handshake_count=client_handshakes,
    )

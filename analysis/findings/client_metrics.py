# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of recorded clients: what they compute while they connect."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import Counts, add_counts
from tlstax.analysis.findings.window_metrics import Metric, Metrics, counted, exact
from tlstax.analysis.rows import ledger, window_units
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

LEAST_CONNECTIONS: Final = 20
"""Connections of recorded clients from which on means of their times are metrics.

The bound of the server's handshakes in the rules is the same. These means have no interval.
"""
TOO_FEW: Final = "too few connections"
"""Of clients with windows, as the value of `client_recorded`."""
_CERTIFICATES: Final = ("connect", "certificate")


def add_client(
    found: Metrics,
    part: Group,
    tables: Tables,
    client_counts: Mapping[int, Counts],
) -> None:
    """What clients computed while they connected, from windows of the same time.

    Of too few connections there is only the word that they are too few: rules judge then as if no
    client had been recorded.
    """
    clients = tables.clients
    recorded = clients is not None and bool(clients.windows)
    found["client_recorded"] = Metric(None, text="yes" if recorded else "no")
    if clients is None or not recorded:
        return
    run_ids = {run.run_id for run in part.runs}
    ids = {w.window_id for w in clients.windows if not part.runs or w.run_id in run_ids}
    totals = ledger.totals(clients.ledger, ids)
    cpu = {phase: float(ns) for phase, ns in ledger.on_cpu(totals).items()}
    ended = {"connect": 0, "handshake": 0}
    for row in clients.phase_counts:
        if row.window_id in ids and row.phase in ended:
            ended[row.phase] += row.ended_count
    count = max(ended.values())
    if count < LEAST_CONNECTIONS:
        found["client_recorded"] = Metric(None, text=TOO_FEW)
        return
    in_handshake = sum(cpu.get(phase, 0.0) for phase in HANDSHAKE_PHASES)
    setup = cpu.get("connect", 0.0)
    waits = sum(
        time_ns
        for (phase, state), time_ns in totals.items()
        if phase == "connect" and state in ("blocked_futex", "blocked_lock")
    )
    queued = sum(
        time_ns
        for (phase, state), time_ns in totals.items()
        if state == "runnable" and phase in ("connect", *HANDSHAKE_PHASES)
    )
    samples = add_counts(client_counts, ids)
    found["client_samples_count"] = exact(_sampled(samples, ("connect", *HANDSHAKE_PHASES)))
    found["client_connecting_ns"] = exact((setup + in_handshake) / count)
    found["client_sign_ns"] = exact(cpu.get("sign", 0.0) / count)
    found["client_work_ns"] = exact((setup + in_handshake - cpu.get("sign", 0.0)) / count)
    found["client_runnable_ns"] = exact(queued / count)
    found["client_handshake_ns"] = exact((in_handshake - cpu.get("sign", 0.0)) / count)
    found["client_setup_ns"] = exact((setup + waits) / count)
    found["client_setup_share"] = exact(setup / max(1.0, setup + in_handshake))
    computed = max(1.0, setup + in_handshake)
    # All of its CPU time causes its waiting for a CPU, as in the shares of the server.
    sign = cpu.get("sign", 0.0) * (1.0 + queued / computed)
    of_handshakes = found["handshake_network_share"], found["handshake_wait_ns"].value
    found["client_sign_wait_share"] = _awaited(*of_handshakes, sign / count)
    awaited_ns = found["connecting_wait_ns"].value
    if awaited_ns:
        found["client_connecting_ratio"] = exact((setup + in_handshake) / count / awaited_ns)
        with_queue = setup + waits + queued * setup / computed
        network = found["connecting_network_share"]
        found["client_setup_wait_share"] = _awaited(network, awaited_ns, with_queue / count)
    of = window_units.of_group(_within(part, ids), clients.windows)
    hits, sampled = np.zeros(of.units.count), np.zeros(of.units.count)
    for window_id, unit in of.unit_of.items():
        mine = client_counts.get(window_id, {})
        hits[unit] += mine.get(_CERTIFICATES, 0)
        sampled[unit] += _sampled(mine, ("connect",))
    found["client_certificate_share"] = counted(hits, sampled, of.units)


def lacking_connections(metrics: Metrics) -> str:
    """A sentence, if the server had handshakes enough for rules of clients, and the clients not."""
    unknown = Metric(None)
    count = metrics.get("handshakes_count", unknown).value or 0.0
    recorded = metrics.get("client_recorded", unknown).text
    if recorded != TOO_FEW or count <= LEAST_CONNECTIONS:
        return ""
    return (
        f" The recorded clients opened fewer than {LEAST_CONNECTIONS} connections in the time with "
        "a ledger: causes in clients need more of them."
    )


def _awaited(network: Metric, awaited_ns: float | None, work_ns: float) -> Metric:
    """The part of a share of waiting in which a client works so long per connection."""
    if not awaited_ns or network.value is None or network.low is None or network.high is None:
        return Metric(None)
    part = min(1.0, work_ns / awaited_ns)
    share = (network.value * part, network.low * part, network.high * part)
    return Metric(*share, unit_count=network.unit_count)


def _within(part: Group, window_ids: Collection[int]) -> Group:
    """The same runs with the windows of the clients."""
    return replace(part, window_ids=frozenset(window_ids))


def _sampled(samples: Counts, phases: Collection[str]) -> int:
    return sum(count for (phase, _), count in samples.items() if phase in phases)

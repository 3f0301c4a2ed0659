# SPDX-License-Identifier: GPL-2.0-only
"""What a prediction takes from a recording, or why the recording is insufficient."""

import math
from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.compare import replicates, selections
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import ledger
from tlstax.analysis.whatif.summary import Facts
from tlstax.collectors.capture.micro_costs import MicroCosts

ALIKE: Final = 1.6
"""Largest factor between a signature in the server and one of the same kind in the loop."""


def handshake_facts(side: RecordingSelection) -> Facts:
    """TLS version, client certificates and resumption of most handshakes.

    Raises TlstaxError (CAPTURE) where there was none, or no full one whose checks were recorded.
    """
    rows = [
        row
        for row in side.tables.handshakes
        if row.window_id in side.group.window_ids and row.outcome == "success"
    ]
    if not rows:
        raise TlstaxError(
            f"cannot predict from {side.label}",
            "it has no TLS handshake",
            "Choose its TLS arm, or record while clients connect",
            ExitCode.CAPTURE,
        )
    version = Counter(row.tls_version for row in rows).most_common(1)[0][0]
    # A resumed handshake checks no certificate, even of a client that has one.
    full = [row for row in rows if not row.resumed]
    if not full:
        raise TlstaxError(
            f"cannot predict from {side.label}",
            "all of its handshakes were resumed: whether clients have certificates is not known",
            "Record for longer, or while clients connect for the first time",
            ExitCode.CAPTURE,
        )
    checks = [row.verify_ns > 0 for row in full if row.verify_ns >= 0]
    if not checks:
        raise TlstaxError(
            f"cannot predict from {side.label}",
            "it does not tell whether clients have certificates: checks were not recorded",
            "Record for longer, or with --level handshake or higher",
            ExitCode.CAPTURE,
        )
    resumed = sum(row.resumed == 1 for row in rows)
    return Facts(version, 2 * sum(checks) > len(checks), resumed / len(rows))


def present_key(side: RecordingSelection, costs: MicroCosts) -> str:
    """The kind of the recorded key, identified by the duration of a signature.

    Raises TlstaxError (USAGE) if no measured kind is similar.
    """
    sign_ns = _signature_ns(side)
    near = sorted(
        (abs(math.log(max(sign_ns, 1.0) / key.sign.value_ns)), name)
        for name, key in costs.keys.items()
    )
    if near[0][0] > math.log(ALIKE):
        raise TlstaxError(
            "cannot identify the kind of the recorded key",
            f"a signature took {time_text(sign_ns)}, and the most similar kind on this host is "
            f"{near[0][1]} with {time_text(costs.keys[near[0][1]].sign.value_ns)}",
            "Name it with --from-key",
            ExitCode.USAGE,
        )
    return near[0][1]


def _signature_ns(side: RecordingSelection) -> float:
    """What a signature took: the middle of those of full handshakes, which light time has, too.

    Without one, the CPU time of signatures in windows with a ledger by the handshakes there.
    """
    mine = side.group.window_ids
    known = [
        row.sign_ns
        for row in side.tables.handshakes
        if row.window_id in mine and row.outcome == "success" and not row.resumed
        if row.sign_ns > 0
    ]
    if known:
        return float(np.median(known))
    totals = ledger.totals(side.tables.ledger, mine)
    return totals.get(("sign", "on_cpu"), 0) / max(side.ledger_counts.get("handshake", 0), 1)


def refuse(side: RecordingSelection, unit: str, *, by_driver: bool) -> None:
    """Raises TlstaxError (CAPTURE) if a recording is insufficient for a prediction."""
    reasons = selections.unseen(side)
    if not by_driver and not reasons:
        reasons = selections.uncounted(side, unit)
    if reasons:
        raise TlstaxError(
            f"cannot predict from {side.label}",
            "; ".join(reasons),
            "Record it with `tlstax attach` or `tlstax lab`",
            ExitCode.CAPTURE,
        )


def refuse_few(base: Replicates) -> None:
    """Raises TlstaxError (CAPTURE) where a recording without a driver has too few windows.

    One window has no range, and two or three say nothing of how much they differ.
    """
    if base.side.group.runs:
        return
    label = base.side.label
    if reasons := selections.too_few([base.size], [label], "windows", "prediction"):
        raise TlstaxError(
            f"cannot predict from {label}",
            "; ".join(reasons),
            "Record it again, or choose another part",
            ExitCode.CAPTURE,
        )


def per_operation(base: Replicates, least: float = 1e-9) -> tuple[float, float]:
    """Connections and answered queries per operation."""
    counts: Counter[str] = Counter()
    for row in base.tables.phase_counts:
        if row.window_id in base.rows:
            counts[row.phase] += row.ended_count
    operations = float(base.operations[0])
    connections, queries = counts["connect"] / operations, counts["record_write"] / operations
    if connections < least or queries < least:
        raise TlstaxError(
            "cannot predict pooling",
            "the recording has no connection, or no answer to a query",
            "Record while clients connect and send queries, at --level record",
            ExitCode.CAPTURE,
        )
    return connections, queries


def warm_queries(side: RecordingSelection) -> Replicates:
    """Queries on persistent connections. Raises TlstaxError for other operations."""
    by_driver = bool(side.group.runs)
    refuse(side, "query", by_driver=by_driver)
    warm = replicates.of_side(computing(side), "query", builtin(), by_driver=by_driver)
    refuse_few(warm)
    connections, queries = per_operation(warm, least=0.0)
    if queries < 0.99 or connections > 0.02:
        raise TlstaxError(
            f"{side.label} has no warm queries",
            "its operations are not single queries on persistent connections",
            "Record a client that repeats one query on the same connection",
            ExitCode.CAPTURE,
        )
    return warm


def computing(side: RecordingSelection) -> RecordingSelection:
    """The recording without the waits of disconnecting, whose step has its CPU time and waits."""
    kept = [row for row in side.tables.ledger if row.phase != "disconnect" or row.state == "on_cpu"]
    return replace(side, tables=replace(side.tables, ledger=kept))

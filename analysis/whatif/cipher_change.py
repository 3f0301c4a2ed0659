# SPDX-License-Identifier: GPL-2.0-only
"""Another bulk cipher for the records of a recording: the change of CPU time.

There are two models. *By bytes*: records of the recorded number and size cost the same as in a loop
on this host, with either cipher. *By share*: the CPU time that samples show in the library scales
like whole records in the loop, or the CPU time in ciphers and digests scales like one further byte.
The change lies between the lowest and the highest of the three. Other work of the server changes
with it: a thread that computes for less time is interrupted less often and has warmer caches.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.findings.window_metrics import RECORD_CRYPTO, RECORD_PHASES
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import MicroCost
from tlstax.analysis.quantities import bytes_text, three_digits
from tlstax.analysis.rows.ledger import on_cpu
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.whatif.forecast import COLD, RECORDING, Draws, State, draw
from tlstax.collectors.capture.ciphers import SUITES, bulk_cipher
from tlstax.collectors.capture.micro_costs import Cost, RecordCosts
from tlstax.collectors.capture.printable import whole_number

RECORD_BYTES: Final = 16384
"""The most that a TLS record holds."""
SAMPLES_LEAST: Final = 200
"""Minimum number of samples in the phases with records."""
_PHASES: Final = ("record_read", "record_write", "command")
"""Phases with records: long results are sent during the command."""
_ALIKE: Final = 0.98
_LIBRARY: Final = ("asymmetric", "kdf_rng", "certificate", "provider_fetch", "tls_protocol")
"""Other work of the library in a record phase, all of it for records."""
FOLLOWS: Final = (1.0, 0.7)
"""How far all other work may follow a change, as a share of it: if the CPUs are the bottleneck, and
if they are not (measured: nearly 1, and at least 0.4, docs/whatif.md)."""


@dataclass(frozen=True)
class Flow:
    """Records of an operation in one direction."""

    records: float
    size_bytes: float

    @property
    def mean_bytes(self) -> float:
        """Of a record."""
        return self.size_bytes / self.records if self.records else 0.0


@dataclass(frozen=True)
class Traffic:
    """Records of an operation, as the server sees them."""

    sent: Flow
    received: Flow
    crypto: Floats
    """CPU time of the server in ciphers and digests, by row of the error sources."""
    library: Floats
    """The same with what else the TLS library does for records."""


def present_cipher(side: RecordingSelection) -> str:
    """The bulk cipher of nearly all handshakes.

    Raises TlstaxError (USAGE) if there are several, or if it is unknown.
    """
    found = [
        bulk_cipher(row.cipher)
        for row in side.tables.handshakes
        if row.window_id in side.group.window_ids and row.outcome == "success"
    ]
    most = max(set(found), key=found.count, default="")
    if not most or found.count(most) < _ALIKE * len(found):
        seen = {row.cipher for row in side.tables.handshakes}
        raise TlstaxError(
            "cannot identify the recorded cipher",
            f"the handshakes name {', '.join(sorted(seen))}",
            f"Name it with --from-cipher: {', '.join(SUITES)}",
            ExitCode.USAGE,
        )
    return most


def require_suite(cipher: str, tls_version: str) -> None:
    """TlstaxError (USAGE) where a TLS version cannot use a cipher."""
    if tls_version not in SUITES[cipher]:
        fitting = [name for name, suites in SUITES.items() if tls_version in suites]
        raise TlstaxError(
            f"{tls_version} cannot use {cipher}",
            f"of the supported ciphers it has {', '.join(fitting) or 'none'}; another version of "
            "TLS also changes the handshake, which is not predicted",
            "Choose one of them, or record a server that is limited to TLS 1.2",
            ExitCode.USAGE,
        )


# ---- what was recorded ----


def traffic(base: Replicates, sources: ErrorSources, *, by_driver: bool) -> Traffic:
    """Records, bytes and their CPU time per operation.

    Raises TlstaxError (CAPTURE) where the recording does not have them.
    """
    counts = {"record_write": 0.0, "record_read": 0.0}
    for row in base.tables.phase_counts:
        if row.window_id in base.rows and row.phase in counts:
            counts[row.phase] += row.ended_count
    operations = float(base.operations[0])
    flows = []
    for name, phase in (("Bytes_sent", "record_write"), ("Bytes_received", "record_read")):
        size = _grown(base.side, name, by_driver=by_driver)
        if not size or not counts[phase]:
            raise TlstaxError(
                "cannot predict another cipher",
                "the recording does not have the bytes that the server sent and received"
                if counts[phase]
                else "the recording has no answers to queries",
                "Record with --collect native,status at --level record",
                ExitCode.CAPTURE,
            )
        # Results larger than a record are sent in full records.
        records = max(counts[phase], size / RECORD_BYTES)
        flows.append(Flow(records / operations, size / operations))
    _require_samples(base)
    crypto = _spent(base, _PHASES, RECORD_CRYPTO)
    beside = _spent(base, RECORD_PHASES, _LIBRARY)
    rows = [sources.rows_of(RECORDING, values) for values in (crypto, crypto + beside)]
    return Traffic(flows[0], flows[1], *rows)


def _grown(side: RecordingSelection, name: str, *, by_driver: bool) -> float:
    """Bytes by a counter of the server over the recording; a counter that decreases was reset."""
    readings: dict[int | None, list[tuple[int, float]]] = {}
    runs = {run.run_id for run in side.group.runs}
    for row in side.tables.status:
        value = whole_number(row.value, 20) if row.name == name else None
        if value is not None and (row.run_id in runs or not by_driver):
            readings.setdefault(row.run_id, []).append((row.time_ns, float(value)))
    grown = 0.0
    for values in readings.values():
        ordered = [value for _, value in sorted(values)]
        grown += sum(max(0.0, b - a) for a, b in pairwise(ordered))
    if by_driver or not grown:
        return grown
    times = [time_ns for values in readings.values() for time_ns, _ in values]
    return grown * _recorded_ns(side.tables, side) / (max(times) - min(times))


def _recorded_ns(tables: Tables, side: RecordingSelection) -> float:
    return sum(
        window.end_ns - window.start_ns
        for window in tables.windows
        if window.window_id in side.group.window_ids
    )


def _require_samples(base: Replicates) -> None:
    """TlstaxError (CAPTURE) where the composition of records is not known."""
    seen = sum(
        count
        for window_id in base.rows
        for (phase, _), count in base.counts.get(window_id, {}).items()
        if phase in _PHASES
    )
    if seen < SAMPLES_LEAST:
        raise TlstaxError(
            "cannot predict another cipher",
            f"the recording has {seen} samples of records and commands; the share of encryption "
            f"needs {SAMPLES_LEAST}",
            "Record for longer, or with more samples (--sample-hz)",
            ExitCode.CAPTURE,
        )


def _spent(base: Replicates, phases: Collection[str], categories: Collection[str]) -> Floats:
    """CPU time in categories while commands are served, per operation."""
    total = np.zeros(len(base.weights))
    for phase in phases:
        times, found, samples = (np.zeros(base.size) for _ in range(3))
        for window_id, row in base.rows.items():
            times[row] += on_cpu(base.sums.get(window_id, {})).get(phase, 0)
            for (name, category), count in base.counts.get(window_id, {}).items():
                if name == phase:
                    samples[row] += count
                    found[row] += count if category in categories else 0
        hits, seen = base.weights @ found, base.weights @ samples
        pooled = np.full_like(seen, hits[0] / max(seen[0], 1.0))
        total += (base.weights @ times) * np.divide(hits, seen, out=pooled, where=seen > 0)
    result: Floats = total / base.operations
    return result


# ---- what would be ----


def with_cipher(
    state: State, flows: Traffic, old: RecordCosts, new: RecordCosts, *, is_full: bool
) -> State:
    """The server's records, and the client's, with another cipher.

    `is_full`: the host's CPUs are the bottleneck.
    """
    draws = state.sources
    before, after = (_loop(draws, costs, flows.sent, flows.received) for costs in (old, new))
    bulk = _bulk(new, flows) / _bulk(old, flows)
    estimates = (after - before, flows.library * (after / before - 1), flows.crypto * (bulk - 1))
    # A change cannot save more than the recorded cost.
    changes = [np.maximum(one, -flows.library) for one in estimates]
    low, high = np.minimum.reduce(changes), np.maximum.reduce(changes)
    total = state.by_parts + state.connection + state.query
    follows = FOLLOWS[0 if is_full else 1] * (total - flows.library) / total
    mirrored = [_loop(draws, costs, flows.received, flows.sent) for costs in (new, old)]
    # The ratio between program and loop is taken to be the same for client and server.
    by_bytes = np.where(np.abs(changes[0]) < 1.0, 1.0, changes[0])
    factors = [np.clip(one / by_bytes, *COLD) for one in changes]
    client = mirrored[0] - mirrored[1]
    ends = client * np.minimum.reduce(factors), client * np.maximum.reduce(factors)
    return replace(
        state,
        query_low=np.maximum(0.0, state.query_low + low),
        query=np.maximum(0.0, state.query + high),
        less=state.less + follows * np.maximum(0.0, -low),
        more=state.more + follows * np.maximum(0.0, high),
        client_low=np.maximum(0.0, state.client_low + np.minimum(*ends)),
        client=np.maximum(0.0, state.client + np.maximum(*ends)),
    )


def _loop(draws: Draws, costs: RecordCosts, sent: Flow, received: Flow) -> Floats:
    """Records of an operation as they cost in a loop."""
    return _of(draws, costs.sent, sent) + _of(draws, costs.received, received)


def _of(draws: Draws, curve: Mapping[int, Cost], flow: Flow) -> Floats:
    low, high = _segment(curve, flow.mean_bytes)
    share = (flow.mean_bytes - low) / (high - low)
    first, second = draw(draws, curve[low]), draw(draws, curve[high])
    return flow.records * np.maximum(first + share * (second - first), 0.05 * first)


def _bulk(costs: RecordCosts, flows: Traffic) -> float:
    """Bytes of an operation at the cost of a further byte."""
    directions = ((costs.sent, flows.sent), (costs.received, flows.received))
    return sum(_slope(curve) * flow.size_bytes for curve, flow in directions)


def _slope(curve: Mapping[int, Cost]) -> float:
    """CPU time of a further byte of a long record."""
    low, high = sorted(curve)[-2:]
    return max(1e-6, (curve[high].value_ns - curve[low].value_ns) / (high - low))


def _segment(curve: Mapping[int, Cost], size: float) -> tuple[int, int]:
    """The measured sizes around one, or the outer two next to it."""
    sizes = sorted(curve)
    low = max((one for one in sizes[:-1] if one <= size), default=sizes[0])
    return low, sizes[sizes.index(low) + 1]


# ---- for the reader ----


def costs_used(flows: Traffic, old: RecordCosts, new: RecordCosts) -> list[MicroCost]:
    """Micro-costs of the record sizes in both directions."""
    found = []
    for name, flow in (("sent", flows.sent), ("received", flows.received)):
        curves = [getattr(costs, name) for costs in (old, new)]
        for size in _segment(curves[0], flow.mean_bytes):
            plain = [Measure(c[size].value_ns, c[size].low_ns, c[size].high_ns) for c in curves]
            found.append(MicroCost(f"record of {size:,} bytes, {name}", *plain))
    return found


def assumptions(flows: Traffic, old: str, new: str) -> list[str]:
    """The assumptions, in sentences."""
    sizes = [f"{three_digits(flow.records)} of {bytes_text(flow.mean_bytes)}" for flow in
             (flows.sent, flows.received)]  # fmt: skip
    return [
        (
            f"Records change from {old} to {new}; their number and size do not: per operation "
            f"{sizes[0]} sent and {sizes[1]} received, by the server's counters."
        ),
        "Clients use the same OpenSSL as the server; handshakes do not change.",
    ]

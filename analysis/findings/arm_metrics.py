# SPDX-License-Identifier: GPL-2.0-only
"""Metrics that need both arms of an experiment: what TLS adds to a client that was not recorded.

The driver's CPU time of each run is exact. A connection of the plaintext arm costs it all but TLS.
"""

import math

import numpy as np

from tlstax.analysis.findings.finding_metrics import Judged
from tlstax.analysis.findings.window_metrics import Metric, ratio
from tlstax.analysis.rows import round_units
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.units import LEAST_RANGE, Floats, Units, unit_weights


def partner_of(part: Group, parts: tuple[Group, ...]) -> Group | None:
    """The plaintext arm of the same load, of a TLS arm."""
    wanted = (part.driver, part.scenario, "plaintext")
    if part.arm != "tls" or not part.runs:
        return None
    return next((one for one in parts if (one.driver, one.scenario, one.arm) == wanted), None)


def add_client_of_arms(judged: Judged, part: Group, plaintext: Group) -> None:
    """The CPU time that TLS adds to the client for a connection, by rounds with both arms.

    Nothing is added where an operation is no connection: a handshake is not told from queries then.
    """
    if part.operation != "connection":
        return
    tls, plain = _by_round(part), _by_round(plaintext)
    numbers = sorted(tls.keys() & plain.keys())
    if not numbers:
        return
    of = round_units.of_runs(part.runs, numbers)
    added = _per_operation(tls, of) - _per_operation(plain, of)
    found = judged.metrics
    found["client_tls_ns"] = _metric(added, of.units)
    awaited = judged.awaited
    # The waits have these units only if every round has both arms, and rounds are their units.
    is_paired = of.units.count >= LEAST_RANGE and len(numbers) == len(tls)
    if awaited is None or not is_paired or len(awaited.share) != len(added):
        return
    ratios = ratio(added, awaited.per_connection_ns)
    found["client_tls_ratio"] = _metric(ratios, of.units)
    # Work before, after or beside the waits is in it too: the server waits for this part at most.
    shares = awaited.share * np.clip(ratios, 0.0, 1.0)
    found["client_tls_wait_share"] = _metric(shares, of.units)


def _metric(values: Floats, of: Units) -> Metric:
    """The median of the units with its bounds: what varies together in a unit is divided there."""
    found = medians.estimate(values, of)
    if not math.isfinite(found.value):
        return Metric(None)
    return Metric(found.value, found.low, found.high, unit_count=found.unit_count)


def _by_round(part: Group) -> dict[int, tuple[float, float]]:
    """(CPU time of the driver in ns, operations) of each round."""
    sums: dict[int, tuple[float, float]] = {}
    for run in part.runs:
        cpu_ns, count = sums.get(run.round, (0.0, 0.0))
        sums[run.round] = (cpu_ns + run.client_cpu_ns, count + run.operation_count)
    return sums


def _per_operation(sums: dict[int, tuple[float, float]], of: RoundUnits) -> Floats:
    """CPU time per operation: of all rounds, then of each unit."""
    values = np.zeros((of.units.count, 2))
    for number, unit in of.unit_of.items():
        values[unit] += sums[number]
    weights = unit_weights(of.units.count)
    return ratio(weights @ values[:, 0], weights @ values[:, 1])

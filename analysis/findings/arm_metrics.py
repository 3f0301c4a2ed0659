# SPDX-License-Identifier: GPL-2.0-only
"""Metrics that need both arms of an experiment: what TLS adds to a client that was not recorded.

The driver's CPU time of each run is exact. A connection of the plaintext arm costs it all but TLS.
"""

import numpy as np

from tlstax.analysis.findings.window_metrics import Metric, Metrics, ratio
from tlstax.analysis.rows import round_units
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.units import Floats, unit_weights


def partner_of(part: Group, parts: tuple[Group, ...]) -> Group | None:
    """The plaintext arm of the same load, of a TLS arm."""
    wanted = (part.driver, part.scenario, "plaintext")
    if part.arm != "tls" or not part.runs:
        return None
    return next((one for one in parts if (one.driver, one.scenario, one.arm) == wanted), None)


def add_client_of_arms(found: Metrics, part: Group, plaintext: Group) -> None:
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
    estimate = medians.estimate(added, of.units)
    mine = Metric(estimate.value, estimate.low, estimate.high, unit_count=estimate.unit_count)
    found["client_tls_ns"] = mine
    awaited, network = found["connecting_wait_ns"].value, found["connecting_network_share"]
    if not awaited or mine.low is None or mine.high is None:
        return
    assert mine.value is not None
    ratios = [value / awaited for value in (mine.value, mine.low, mine.high)]
    found["client_tls_ratio"] = Metric(ratios[0], ratios[1], ratios[2], unit_count=mine.unit_count)
    if network.value is None or network.low is None or network.high is None:
        return
    parts_of = [max(0.0, min(1.0, one)) for one in ratios]
    found["client_tls_wait_share"] = Metric(
        network.value * parts_of[0],
        network.low * parts_of[1],
        network.high * parts_of[2],
        unit_count=network.unit_count,
    )


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

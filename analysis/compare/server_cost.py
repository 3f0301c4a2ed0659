# SPDX-License-Identifier: GPL-2.0-only
"""What TLS costs the server's CPUs, and which causes make up the difference, arm against arm."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tlstax.analysis.compare.rounds import COLUMNS, ArmCosts, rows_of_windows
from tlstax.analysis.model.tables import Cause, CpuCost, Measure, WaterfallStep
from tlstax.analysis.quantities import number_text, share_text
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.units import Floats, Units, unit_weights
from tlstax.analysis.statistics.verdicts import MORE, NO_DIFFERENCE, NO_INTERVAL, judge

CAUSES: Final = (
    (
        "asymmetric crypto in the server",
        (
            *("handshake_sign", "handshake_keygen", "handshake_derive", "handshake_verify"),
            "handshake_asymmetric",
        ),
    ),
    (
        "the rest of the server's handshake work",
        (
            *("handshake_certificate", "handshake_symmetric", "handshake_fetch"),
            *("handshake_protocol", "handshake_memory", "handshake_kernel", "handshake_other"),
        ),
    ),
    ("waiting for the client and the network in the handshake", ("handshake_wait",)),
    (
        "encrypting, framing and copying records",
        (
            *("record_cipher", "record_digest", "record_stitched", "record_protocol"),
            *("record_copies", "record_other"),
        ),
    ),
    ("connecting and commands", ("connect", "command", "tde")),
    ("waiting for a CPU", ("scheduling",)),
    ("other waits", ("network_wait", "locks", "disk", "other_waits")),
    ("the client's own CPU", ("client",)),
    ("the measurement", ("probe",)),
)
"""Groups of steps that a sentence names."""
_FACTOR_FROM: Final = 1.995
"""Ratios from here on are written as a factor, below as a share."""


def server_cpu(
    arms: Sequence[Group], of: RoundUnits, tables: Tables, sums: Mapping[int, Totals]
) -> CpuCost | None:
    """The CPU time of connections per operation in both arms, plaintext first.

    None where the ledger of a unit has none in plaintext: there is no ratio to it.
    """
    low, high = (_sums(arm, of, tables, sums) for arm in arms)
    return of_sums(low, high, of.units)


def of_sums(
    low: tuple[Floats, Floats], high: tuple[Floats, Floats], units: Units
) -> CpuCost | None:
    """The same of CPU time and operations by unit, of the baseline and of what is compared."""
    weights = unit_weights(units.count)
    pair = weights @ low[0] / (weights @ low[1]), weights @ high[0] / (weights @ high[1])
    if not (pair[0] > 0).all():
        return None
    found = medians.difference(*pair, (units, units), is_paired=True)
    return CpuCost(
        plaintext=medians.estimate(pair[0], units).measure(),
        tls=medians.estimate(pair[1], units).measure(),
        difference=found.measure(),
        ratio=medians.ratio(*pair, (units, units), is_paired=True).ratio(),
        verdict=judge(found),
    )


def _sums(
    arm: Group, of: RoundUnits, tables: Tables, sums: Mapping[int, Totals]
) -> tuple[Floats, Floats]:
    """CPU time and operations by unit."""
    cpu_ns, operations = np.zeros(of.units.count), np.zeros(of.units.count)
    of_run = {run.run_id: of.unit_of[run.round] for run in arm.runs if run.round in of.unit_of}
    for run in arm.runs:
        if run.run_id in of_run:
            operations[of_run[run.run_id]] += run.operation_count
    for window_id, row in rows_of_windows(tables, of_run).items():
        served = ledger.served(sums.get(window_id, {}))
        cpu_ns[row] += sum(ledger.on_cpu(served).values())
    return cpu_ns, operations


def causes(
    steps: Sequence[WaterfallStep],
    arms: tuple[ArmCosts, ArmCosts],
    units: Units,
    whole_ns: float | None,
) -> list[Cause]:
    """Groups of steps that are beyond doubt, with their share of the difference, largest first.

    A group is the sum of its firm steps only. The bounds of its share are those of its shares
    unit by unit. Nothing is named where parts are larger than the whole: their difference is
    noise.
    """
    left = next((step.share for step in steps if step.name == "unexplained"), None)
    if not whole_ns or abs(left or 0.0) > 1:
        return []
    firm = {step.name for step in steps if is_firm(step)}
    place = {kind.name: index for index, kind in enumerate(COLUMNS)}
    wholes_ns = arms[1].latency_ns - arms[0].latency_ns
    found = []
    for label, names in CAUSES:
        mine = [name for name in names if name in firm]
        if not mine:
            continue
        low, high = (arm.steps_ns[:, [place[name] for name in mine]].sum(axis=1) for arm in arms)
        of = medians.difference(low, high, (units, units), is_paired=True)
        shares = np.full(len(wholes_ns), np.nan)
        np.divide(high - low, wholes_ns, out=shares, where=wholes_ns > 0)
        share = medians.around(of.value / whole_ns, shares, units)
        found.append(Cause(label, mine, of.measure(), share.ratio()))
    if any(cause.share.value > 1 for cause in found):
        return []
    return sorted(found, key=lambda cause: -cause.share.value)


def cpu_factor_text(cost: CpuCost) -> str:
    """What follows "takes": 12 times the server CPU, 27 % more server CPU."""
    ratio = cost.ratio.value
    if ratio >= _FACTOR_FROM:
        return f"{number_text(ratio)} times the server CPU"
    word = "more" if ratio >= 1 else "less"
    return f"{share_text(abs(ratio - 1))} {word} server CPU"


def is_firm(step: WaterfallStep) -> bool:
    """Whether TLS makes a step longer beyond doubt; few rounds must at least agree on its sign."""
    is_more = step.verdict in (MORE, NO_INTERVAL) and step.difference.value_ns > 0
    return is_more and not is_unseen(step.verdict, step.difference)


def is_unseen(verdict: str, difference: Measure) -> bool:
    """Whether a difference was not seen; few rounds must at least agree on its sign."""
    if verdict == NO_INTERVAL and difference.low_ns is not None and difference.high_ns is not None:
        return difference.low_ns <= 0 <= difference.high_ns
    return verdict == NO_DIFFERENCE

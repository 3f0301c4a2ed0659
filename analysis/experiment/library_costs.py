# SPDX-License-Identifier: GPL-2.0-only
"""What TLS adds to a unit of work in one server, by category, with intervals.

The on-CPU time of each phase is exact; the samples in it split it over categories. Each figure is
the median of the differences between both arms of a round or server start, as in `compare`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import EXACT, Counts
from tlstax.analysis.compare.rounds import paired_rounds
from tlstax.analysis.model.libraries import CategoryCost, Cost
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.rows import ledger, round_units
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics import units as units_of
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.vocabulary import CATEGORIES

BYTES_PER_KB: Final = 1024
SENT: Final = "Bytes_sent"
"""The server's own counter of what it sent."""


@dataclass(frozen=True)
class Arm:
    """One arm, unit by unit: rows are rounds, or server starts with all of their rounds."""

    units: Floats
    operations: Floats
    latency_ns: Floats
    """Sum over the operations."""
    on_cpu_ns: Floats
    """units x phases."""
    samples: Floats
    """units x phases x categories."""


def cost(
    plaintext: Group,
    tls: Group,
    phases: Sequence[str],
    per: str,
    tables: Tables,
    counts: Mapping[int, Counts],
) -> Cost | None:
    """The difference of two arms per unit (`per`: "KB" of what was sent, else per operation).

    None where no round has both arms.
    """
    rounds = paired_rounds(plaintext.runs, tls.runs)
    if not rounds:
        return None
    sums = ledger.by_window(tables.ledger)
    of = round_units.of_runs(tls.runs, rounds)
    arms = [_gather(group, of, phases, per, tables, sums, counts) for group in (plaintext, tls)]
    units = of.units
    weights = units_of.unit_weights(units.count)
    low, high = (_split(arm, phases, weights) for arm in arms)
    latency = [(weights @ arm.latency_ns) / (weights @ arm.units) for arm in arms]

    def added(before: Floats, after: Floats) -> Measure:
        return medians.difference(before, after, (units, units), is_paired=True).measure()

    categories = [
        CategoryCost(name, added(low[:, index], high[:, index]))
        for index, name in enumerate(CATEGORIES)
        if high[0, index] or low[0, index]
    ]
    return Cost(
        per=per,
        total=added(low.sum(axis=1), high.sum(axis=1)),
        categories=categories,
        unit_count=float(arms[1].units.sum()),
        sample_count=int(arms[1].samples.sum()),
        latency=added(latency[0], latency[1]),
    )


def _gather(
    group: Group,
    of: RoundUnits,
    phases: Sequence[str],
    per: str,
    tables: Tables,
    sums: Mapping[int, ledger.Totals],
    counts: Mapping[int, Counts],
) -> Arm:
    """One arm's raw figures by unit."""
    size, place = of.units.count, {name: index for index, name in enumerate(phases)}
    operations, latency_ns = np.zeros(size), np.zeros(size)
    on_cpu_ns = np.zeros((size, len(phases)))
    samples = np.zeros((size, len(phases), len(CATEGORIES)))
    rows = {run.run_id: of.unit_of[run.round] for run in group.runs if run.round in of.unit_of}
    for run in group.runs:
        if run.run_id in rows:
            operations[rows[run.run_id]] += run.operation_count
            latency_ns[rows[run.run_id]] += run.client_mean_ns * run.operation_count
    for window in tables.windows:
        if window.run_id not in rows:
            continue
        row = rows[window.run_id]
        for phase, time_ns in ledger.on_cpu(sums.get(window.window_id, {})).items():
            if phase in place:
                on_cpu_ns[row, place[phase]] += time_ns
        for (phase, category), count in counts.get(window.window_id, {}).items():
            if phase in place and category in CATEGORIES:
                samples[row, place[phase], CATEGORIES.index(category)] += count
    units = _sent_kb(tables, rows, size) if per == "KB" else operations
    return Arm(units, operations, latency_ns, on_cpu_ns, samples)


def _sent_kb(tables: Tables, rows: Mapping[int, int], size: int) -> Floats:
    """KB that the server says it sent, by unit: the growth of its counter over each run."""
    sent = np.zeros(size)
    for run_id, row in rows.items():
        values = [
            int(entry.value)
            for entry in tables.status
            if entry.run_id == run_id and entry.name == SENT
        ]
        sent[row] += max(values) - min(values) if values else 0
    return sent / BYTES_PER_KB


def _split(arm: Arm, phases: Sequence[str], weights: Floats) -> Floats:
    """Time per unit of work, of all rows together and of each: rows x categories."""
    times_ns = weights @ arm.on_cpu_ns
    result = np.zeros((len(weights), len(CATEGORIES)))
    for index, phase in enumerate(phases):
        if phase in EXACT:
            result[:, CATEGORIES.index(EXACT[phase])] += times_ns[:, index]
            continue
        samples = weights @ arm.samples[:, index, :]
        # A phase without samples is not split: all of it is what the taxonomy cannot file. A row
        # without samples is split like the others.
        if not samples[0].any():
            samples[:, CATEGORIES.index("unknown")] = 1
        samples[samples.sum(axis=1) == 0] = samples[0]
        result += times_ns[:, [index]] * samples / samples.sum(axis=1, keepdims=True)
    return result / (weights @ arm.units)[:, None]


def unknown_share(counts: Mapping[int, Counts], group: Group, phases: Collection[str]) -> float:
    """Share of a group's samples in some phases that no rule of the taxonomy files."""
    unknown = total = 0
    for window_id in group.window_ids:
        for (phase, category), count in counts.get(window_id, {}).items():
            if phase in phases:
                total += count
                unknown += count if category == "unknown" else 0
    return unknown / total if total else 0.0

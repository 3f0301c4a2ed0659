# SPDX-License-Identifier: GPL-2.0-only
"""What TLS adds to a unit of work in one server, by category, with intervals over rounds.

The on-CPU time of each phase is exact; the samples in it split it over categories. Both arms of a
round are drawn together in each resample, and everything is computed anew, as in `compare`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import EXACT, Counts
from tlstax.analysis.compare.rounds import paired_rounds
from tlstax.analysis.model.libraries import CategoryCost, Cost
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.bootstrap import Floats, estimate, resample_weights
from tlstax.collectors.capture.vocabulary import CATEGORIES

BYTES_PER_KB: Final = 1024
SENT: Final = "Bytes_sent"
"""The server's own counter of what it sent."""


@dataclass(frozen=True)
class Arm:
    """One arm, round by round: rows are rounds."""

    units: Floats
    operations: Floats
    latency_ns: Floats
    """Sum over the operations."""
    on_cpu_ns: Floats
    """rounds x phases."""
    samples: Floats
    """rounds x phases x categories."""


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
    arms = [_gather(group, rounds, phases, per, tables, sums, counts) for group in (plaintext, tls)]
    weights = resample_weights(len(rounds))
    low, high = (_split(arm, phases, weights) for arm in arms)
    added = high - low
    latency = [(weights @ arm.latency_ns) / (weights @ arm.units) for arm in arms]
    categories = [
        CategoryCost(name, Measure(*estimate(added[:, index], len(rounds))))
        for index, name in enumerate(CATEGORIES)
        if high[0, index] or low[0, index]
    ]
    return Cost(
        per=per,
        total=Measure(*estimate(added.sum(axis=1), len(rounds))),
        categories=categories,
        unit_count=float(arms[1].units.sum()),
        sample_count=int(arms[1].samples.sum()),
        latency=Measure(*estimate(latency[1] - latency[0], len(rounds))),
    )


def _gather(
    group: Group,
    rounds: Sequence[int],
    phases: Sequence[str],
    per: str,
    tables: Tables,
    sums: Mapping[int, ledger.Totals],
    counts: Mapping[int, Counts],
) -> Arm:
    """One arm's raw figures by round."""
    size, place = len(rounds), {name: index for index, name in enumerate(phases)}
    operations, latency_ns = np.zeros(size), np.zeros(size)
    on_cpu_ns = np.zeros((size, len(phases)))
    samples = np.zeros((size, len(phases), len(CATEGORIES)))
    row_of = {number: row for row, number in enumerate(rounds)}
    rows = {run.run_id: row_of[run.round] for run in group.runs if run.round in row_of}
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
    """KB that the server says it sent, by round: the growth of its counter over each run."""
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
    """Time per unit: resamples x categories."""
    times_ns = weights @ arm.on_cpu_ns
    result = np.zeros((len(weights), len(CATEGORIES)))
    for index, phase in enumerate(phases):
        if phase in EXACT:
            result[:, CATEGORIES.index(EXACT[phase])] += times_ns[:, index]
            continue
        samples = weights @ arm.samples[:, index, :]
        # A phase without samples is not split: all of it is what the taxonomy cannot file.
        samples[samples.sum(axis=1) == 0, CATEGORIES.index("unknown")] = 1
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

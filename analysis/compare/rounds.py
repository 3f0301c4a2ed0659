# SPDX-License-Identifier: GPL-2.0-only
"""One arm of an experiment as arrays: its units (rounds, server starts), and costs of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.compare import waterfall_steps
from tlstax.analysis.compare.waterfall_steps import (
    BESIDE,
    CLIENT_WAITS,
    KINDS,
    SAMPLED_PHASES,
    UNEXPLAINED,
)
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.schema import Run
from tlstax.collectors.capture.vocabulary import CATEGORIES

COLUMNS: Final = (*KINDS, UNEXPLAINED, *BESIDE)
"""Columns of all arrays of steps."""
_INDEX: Final = {kind.name: index for index, kind in enumerate(COLUMNS)}


@dataclass(frozen=True)
class ArmRounds:
    """One arm, unit by unit: rows are rounds, or server starts with all of their rounds."""

    operations: Floats
    latency_ns: Floats
    """Sum over the operations of the latency at the client."""
    client_cpu_ns: Floats
    exact_ns: Floats
    """units x steps."""
    sampled_ns: Floats
    """units x sampled phases: on-CPU time to be split."""
    samples: Floats
    """units x sampled phases x categories."""


@dataclass(frozen=True)
class ArmCosts:
    """One arm per operation: rows are all units together, then each alone."""

    latency_ns: Floats
    steps_ns: Floats
    sample_counts: dict[str, int]
    """Samples by phase, over all units."""


def paired_rounds(plaintext: Sequence[Run], tls: Sequence[Run]) -> list[int]:
    """Rounds in which both arms finished operations."""
    finished = (
        {run.round for run in runs if run.operation_count > 0 and run.client_mean_ns > 0}
        for runs in (plaintext, tls)
    )
    return sorted(set.intersection(*finished))


def gather(
    group: Group,
    row_of: Mapping[int, int],
    tables: Tables,
    sums: Mapping[int, Totals],
    counts: Mapping[int, Counts],
) -> ArmRounds:
    """One arm's raw figures by unit; `row_of` is that of each round."""
    arm = empty(max(row_of.values(), default=-1) + 1)
    run_rows = {run.run_id: row_of[run.round] for run in group.runs if run.round in row_of}
    for run in group.runs:
        if run.run_id in run_rows:
            row = run_rows[run.run_id]
            arm.operations[row] += run.operation_count
            arm.latency_ns[row] += run.client_mean_ns * run.operation_count
            arm.client_cpu_ns[row] += run.client_cpu_ns
    add_windows(arm, rows_of_windows(tables, run_rows), sums, counts)
    return arm


def empty(size: int) -> ArmRounds:
    """An arm of `size` units in which nothing happened."""
    return ArmRounds(
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.zeros((size, len(COLUMNS))),
        np.zeros((size, len(SAMPLED_PHASES))),
        np.zeros((size, len(SAMPLED_PHASES), len(CATEGORIES))),
    )


def rows_of_windows(tables: Tables, run_rows: Mapping[int, int]) -> dict[int, int]:
    """The row of each window whose run has one."""
    return {
        window.window_id: run_rows[window.run_id]
        for window in tables.windows
        if window.run_id is not None and window.run_id in run_rows
    }


def add_windows(
    arm: ArmRounds,
    rows: Mapping[int, int],
    sums: Mapping[int, Totals],
    counts: Mapping[int, Counts],
) -> None:
    """Add the ledger and the samples of these windows to their rows."""
    for window_id, row in rows.items():
        _add_ledger(arm, row, sums.get(window_id, {}))
        _add_samples(arm, row, counts.get(window_id, {}))


def _add_ledger(arm: ArmRounds, row: int, totals: Totals) -> None:
    for (phase, state), time_ns in totals.items():
        step = waterfall_steps.exact_step(phase, state)
        if step is not None:
            arm.exact_ns[row, _INDEX[step]] += time_ns
        elif phase in SAMPLED_PHASES:
            arm.sampled_ns[row, SAMPLED_PHASES.index(phase)] += time_ns


def _add_samples(arm: ArmRounds, row: int, counts: Counts) -> None:
    for (phase, category), count in counts.items():
        if phase in SAMPLED_PHASES and category in CATEGORIES:
            index = SAMPLED_PHASES.index(phase), CATEGORIES.index(category)
            arm.samples[row, index[0], index[1]] += count


def costs_of(arm: ArmRounds, weights: Floats) -> ArmCosts:
    """Costs per operation for each row of weights over the units; NaN without operations."""
    count = weights @ arm.operations
    count[count == 0] = np.nan
    costs = weights @ arm.exact_ns
    times_ns = weights @ arm.sampled_ns
    for place, phase in enumerate(SAMPLED_PHASES):
        samples = weights @ arm.samples[:, place, :]
        total = samples.sum(axis=1)
        # A phase without samples is not split: all of it is unclassified. A unit without samples
        # is split like the others.
        if not total[0]:
            samples[:, CATEGORIES.index("unknown")] = 1
        samples[total == 0] = samples[0]
        shares = samples / samples.sum(axis=1, keepdims=True)
        for index, category in enumerate(CATEGORIES):
            column = _INDEX[waterfall_steps.sampled_step(phase, category)]
            costs[:, column] += times_ns[:, place] * shares[:, index]
    costs /= count[:, None]
    costs[:, _INDEX["client_cpu"]] = weights @ arm.client_cpu_ns / count
    sample_counts = {
        phase: int(arm.samples[:, place, :].sum()) for place, phase in enumerate(SAMPLED_PHASES)
    }
    return ArmCosts(weights @ arm.latency_ns / count, costs, sample_counts)


def close(plaintext: ArmCosts, tls: ArmCosts, *, is_paired: bool = True) -> None:
    """Fill in the client's step and the unexplained one: steps sum to the latency of each arm.

    Arms that are no pairs have rounds of their own: all rounds of the first together are held
    against each of the second.

    While the client computes, the server waits for it, or for the CPU that the client has: up to
    the length of these waits, the client's CPU time is already included in them. Only what TLS adds
    beyond that is the client's step. The same holds for what TLS saves.
    """
    cpu, client = _INDEX["client_cpu"], _INDEX["client"]
    waits = [_INDEX[name] for name in CLIENT_WAITS]
    low, high = plaintext.steps_ns, tls.steps_ns
    low_waits_ns, high_waits_ns = low[:, waits].sum(axis=1), high[:, waits].sum(axis=1)
    low[:, client] = np.maximum(0.0, low[:, cpu] - low_waits_ns)
    others = slice(None) if is_paired else slice(0, 1)
    added_ns = high[:, cpu] - low[others, cpu]
    covered_ns = np.clip(
        high_waits_ns - low_waits_ns[others], np.minimum(0.0, added_ns), np.maximum(0.0, added_ns)
    )
    high[:, client] = low[others, client] + added_ns - covered_ns
    for arm in (plaintext, tls):
        explained_ns = arm.steps_ns[:, : len(KINDS)].sum(axis=1)
        arm.steps_ns[:, _INDEX["unexplained"]] = arm.latency_ns - explained_ns

# SPDX-License-Identifier: GPL-2.0-only
"""The units that a comparison is made of: rounds or server starts, or blocks of a recording.

Arms of one experiment are compared unit by unit; two recordings are not paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tlstax.analysis.classify.composition import Counts, Stacks, count_samples
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.compare import rounds
from tlstax.analysis.compare.rounds import COLUMNS, ArmRounds
from tlstax.analysis.compare.selections import UNITS, RecordingSelection
from tlstax.analysis.compare.waterfall_steps import BESIDE
from tlstax.analysis.rows import coverage, ledger, round_units, window_units
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.statistics import units as units_of
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS


@dataclass(frozen=True)
class Replicates:
    """One side, unit by unit."""

    side: RecordingSelection
    tables: Tables
    """Scaled to the whole time where it was recorded within a budget."""
    stacks: Stacks
    sums: Mapping[int, ledger.Totals]
    counts: Mapping[int, Counts]
    rows: Mapping[int, int]
    """The row of each window."""
    arm: ArmRounds
    units: Units
    weights: Floats
    """All units together, then each alone."""

    @property
    def size(self) -> int:
        """Rounds, server starts or blocks."""
        return self.units.count

    @property
    def operations(self) -> Floats:
        """Operations of each row of weights; NaN where there was none."""
        total: Floats = self.weights @ self.arm.operations
        total[total == 0] = np.nan
        return total


def paired(
    before: RecordingSelection,
    after: RecordingSelection,
    unit: str,
    taxonomy: Taxonomy,
    *,
    by_driver: bool,
) -> tuple[Replicates, Replicates]:
    """Both sides, with the same rounds if they are of one experiment (`are_paired`)."""
    is_paired = are_paired(before, after, by_driver=by_driver)
    names: list[list[int]] = [[], []]
    if by_driver:
        finished = [
            sorted({run.round for run in side.group.runs if run.operation_count > 0})
            for side in (before, after)
        ]
        common = sorted(set(finished[0]) & set(finished[1]))
        names = [common, common] if is_paired else finished
    first, second = (
        _replicates(side, numbers, unit, taxonomy, by_driver=by_driver)
        for side, numbers in zip((before, after), names, strict=True)
    )
    return first, second


def are_paired(before: RecordingSelection, after: RecordingSelection, *, by_driver: bool) -> bool:
    """Whether both are arms of one experiment."""
    return by_driver and before.tables is after.tables


def of_side(
    side: RecordingSelection, unit: str, taxonomy: Taxonomy, *, by_driver: bool
) -> Replicates:
    """One side alone."""
    numbers = sorted({run.round for run in side.group.runs if run.operation_count > 0})
    return _replicates(side, numbers, unit, taxonomy, by_driver=by_driver)


def _replicates(
    side: RecordingSelection,
    numbers: Sequence[int],
    unit: str,
    taxonomy: Taxonomy,
    *,
    by_driver: bool,
) -> Replicates:
    shakes_in = coverage.HANDSHAKE_LEVELS if by_driver else LEDGER_LEVELS
    tables = coverage.scale(side.tables, shakes_in=shakes_in)
    stacks = Stacks(tables.frames, tables.stacks)
    sums = ledger.by_window(tables.ledger)
    counts = count_samples(tables.samples, stacks, taxonomy)
    rows: Mapping[int, int]
    if by_driver:
        of = round_units.of_runs(side.group.runs, numbers)
        arm = rounds.gather(side.group, of.unit_of, tables, sums, counts)
        runs = [run for run in side.group.runs if run.round in of.unit_of]
        rows = rounds.rows_of_windows(tables, {run.run_id: of.unit_of[run.round] for run in runs})
        units = of.units
    else:
        ledgers = [one for one in side.tables.windows if one.level in LEDGER_LEVELS]
        found = window_units.of_group(side.group, ledgers)
        rows, units = found.unit_of, found.units
        arm = _of_windows(rows, units.count, tables, sums, counts, UNITS[unit])
    weights = units_of.unit_weights(units.count)
    return Replicates(side, tables, stacks, sums, counts, rows, arm, units, weights)


def _of_windows(
    rows: Mapping[int, int],
    size: int,
    tables: Tables,
    sums: Mapping[int, ledger.Totals],
    counts: Mapping[int, Counts],
    phase: str,
) -> ArmRounds:
    """A recording without a driver: an operation takes what the server's threads took for it."""
    arm = rounds.empty(size)
    rounds.add_windows(arm, rows, sums, counts)
    for count in tables.phase_counts:
        if count.phase == phase and count.window_id in rows:
            arm.operations[rows[count.window_id]] += count.ended_count
    on_path = [index for index, kind in enumerate(COLUMNS) if kind not in BESIDE]
    arm.latency_ns[:] = arm.exact_ns[:, on_path].sum(axis=1) + arm.sampled_ns.sum(axis=1)
    return arm

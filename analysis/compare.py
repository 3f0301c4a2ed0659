# SPDX-License-Identifier: GPL-2.0-only
"""Plaintext against TLS: the waterfall per operation, with bootstrap intervals over rounds.

Per arm, each cell is time over operations, both summed over the rounds. Sampled cells are the
exact on-CPU time of the phase times the category's share of the samples. A resample draws rounds
with replacement, both arms of a round together, and computes everything anew, so the intervals
hold the noise of the machine, of the driver and of sampling. Cells and `unexplained` sum to the
difference of the client's latency by construction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis import cells, operations
from tlstax.analysis.cells import BESIDE, CLIENT_WAITS, KINDS, SAMPLED_PHASES, UNEXPLAINED, CellKind
from tlstax.analysis.composition import Counts
from tlstax.analysis.document_tables import (
    Cell,
    Comparison,
    Measure,
    Ratio,
)
from tlstax.analysis.ledger import Totals
from tlstax.analysis.statistics import (
    MIN_ROUNDS,
    RESAMPLES,
    WIDE_ROUNDS,
    Floats,
    interval,
    resample_weights,
)
from tlstax.analysis.tables import Group, Tables
from tlstax.collectors.capture.schema import Run
from tlstax.collectors.capture.vocabulary import CATEGORIES

NO_DIFFERENCE: Final = "no difference seen"
NO_INTERVAL: Final = "no interval"
_COLUMNS: Final = (*KINDS, UNEXPLAINED, *BESIDE)
_INDEX: Final = {kind.name: index for index, kind in enumerate(_COLUMNS)}


@dataclass(frozen=True)
class ArmRounds:
    """One arm, round by round: rows are rounds."""

    operations: Floats
    latency_ns: Floats
    """Sum over the operations of the latency at the client."""
    client_cpu_ns: Floats
    exact_ns: Floats
    """rounds x cells."""
    sampled_ns: Floats
    """rounds x sampled phases: on-CPU time to be split."""
    samples: Floats
    """rounds x sampled phases x categories."""


@dataclass(frozen=True)
class ArmCosts:
    """One arm per operation: rows are resamples (the first is the estimate itself)."""

    latency_ns: Floats
    cells_ns: Floats
    sample_counts: dict[str, int]
    """Samples by phase, over all rounds."""


def compare(
    plaintext: Group,
    tls: Group,
    tables: Tables,
    sums: Mapping[int, Totals],
    counts: Mapping[int, Counts],
) -> Comparison:
    """Compare two arms of one driver and scenario.

    `sums` and `counts` are the ledger and the samples by window.
    """
    reason = refusal(plaintext, tls, tables)
    name = f"{tls.driver}/{tls.scenario}"
    if reason is not None:
        return _refused(name, plaintext, tls, reason)
    rounds = paired_rounds(plaintext.runs, tls.runs)
    weights = np.ones((1, len(rounds)))
    resampled = len(rounds) >= MIN_ROUNDS
    if resampled:
        weights = np.vstack([weights, resample_weights(len(rounds))])
    arms = {
        group.arm: _costs(_gather(group, rounds, tables, sums, counts), weights)
        for group in (plaintext, tls)
    }
    low, high = arms["plaintext"], arms["tls"]
    _close(low, high)
    difference = _measure(high.latency_ns - low.latency_ns, len(rounds))
    ratio = _measure(high.latency_ns / low.latency_ns, len(rounds))
    verdict = judge(difference)
    used = {
        group.arm: [run for run in group.runs if run.round in rounds] for group in (plaintext, tls)
    }
    lines = _lines(low, high, len(rounds), difference if verdict in ("more", NO_INTERVAL) else None)
    return Comparison(
        name=name,
        driver=tls.driver,
        scenario=tls.scenario,
        operation=operations.operation_name(tls.runs),
        refusal=None,
        sentence="",
        note=_note(len(rounds)),
        round_count=len(rounds),
        resample_count=RESAMPLES if resampled else 0,
        operation_counts={
            arm: sum(run.operation_count for run in runs) for arm, runs in used.items()
        },
        latency={arm: _measure(costs.latency_ns, len(rounds)) for arm, costs in arms.items()},
        throughput_per_second={arm: _throughput(runs) for arm, runs in used.items()},
        difference=difference,
        ratio=Ratio(ratio.value_ns, ratio.low_ns, ratio.high_ns),
        verdict=verdict,
        cells=lines[: len(KINDS) + 1],
        beside=lines[len(KINDS) + 1 :],
    )


def refusal(plaintext: Group, tls: Group, tables: Tables) -> str | None:
    """Why two arms must not be compared, or None."""
    for group in (plaintext, tls):
        if not group.runs:
            return f"there is no {group.arm} run"
        if not group.operation_count:
            return f"no operation was finished in the {group.arm} runs"
    if not paired_rounds(plaintext.runs, tls.runs):
        return "no round has a finished run of both arms"
    if {run.threads_count for run in plaintext.runs} != {run.threads_count for run in tls.runs}:
        return "the arms ran with different numbers of client threads"
    if len(tables.targets) > 1:
        return "more than one server was measured"
    shakes = {
        group.arm: sum(
            row.ended_count
            for row in tables.phase_counts
            if row.phase == "handshake" and row.window_id in group.window_ids
        )
        for group in (plaintext, tls)
    }
    if shakes["plaintext"]:
        return f"the plaintext arm made {shakes['plaintext']} TLS handshakes"
    if not shakes["tls"]:
        return "no handshake was seen in the TLS arm"
    return None


def paired_rounds(plaintext: Sequence[Run], tls: Sequence[Run]) -> list[int]:
    """Rounds in which both arms finished operations."""
    finished = (
        {run.round for run in runs if run.operation_count > 0 and run.client_mean_ns > 0}
        for runs in (plaintext, tls)
    )
    return sorted(set.intersection(*finished))


def judge(difference: Measure) -> str:
    """What a difference says: more, less, nothing, or nothing that can be said."""
    if difference.low_ns is None or difference.high_ns is None:
        return NO_INTERVAL
    if difference.low_ns <= 0 <= difference.high_ns:
        return NO_DIFFERENCE
    return "more" if difference.low_ns > 0 else "less"


def _gather(
    group: Group,
    rounds: Sequence[int],
    tables: Tables,
    sums: Mapping[int, Totals],
    counts: Mapping[int, Counts],
) -> ArmRounds:
    """One arm's raw figures by round."""
    size = len(rounds)
    arm = ArmRounds(
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.zeros((size, len(_COLUMNS))),
        np.zeros((size, len(SAMPLED_PHASES))),
        np.zeros((size, len(SAMPLED_PHASES), len(CATEGORIES))),
    )
    row_of = {number: row for row, number in enumerate(rounds)}
    run_rows = {run.run_id: row_of[run.round] for run in group.runs if run.round in row_of}
    for run in group.runs:
        if run.run_id in run_rows:
            row = run_rows[run.run_id]
            arm.operations[row] += run.operation_count
            arm.latency_ns[row] += run.client_mean_ns * run.operation_count
            arm.client_cpu_ns[row] += run.client_cpu_ns
    for window in tables.windows:
        if window.run_id in run_rows:
            row = run_rows[window.run_id]
            _add_ledger(arm, row, sums.get(window.window_id, {}))
            _add_samples(arm, row, counts.get(window.window_id, {}))
    return arm


def _add_ledger(arm: ArmRounds, row: int, totals: Totals) -> None:
    for (phase, state), time_ns in totals.items():
        cell = cells.exact_cell(phase, state)
        if cell is not None:
            arm.exact_ns[row, _INDEX[cell]] += time_ns
        elif phase in SAMPLED_PHASES:
            arm.sampled_ns[row, SAMPLED_PHASES.index(phase)] += time_ns


def _add_samples(arm: ArmRounds, row: int, counts: Counts) -> None:
    for (phase, category), count in counts.items():
        if phase in SAMPLED_PHASES and category in CATEGORIES:
            index = SAMPLED_PHASES.index(phase), CATEGORIES.index(category)
            arm.samples[row, index[0], index[1]] += count


def _costs(arm: ArmRounds, weights: Floats) -> ArmCosts:
    """Costs per operation for each row of weights over the rounds."""
    count = weights @ arm.operations
    costs = weights @ arm.exact_ns
    times_ns = weights @ arm.sampled_ns
    for place, phase in enumerate(SAMPLED_PHASES):
        samples = weights @ arm.samples[:, place, :]
        total = samples.sum(axis=1)
        # A phase without samples is not split: all of it is what the taxonomy cannot file.
        samples[total == 0, CATEGORIES.index("unknown")] = 1
        shares = samples / samples.sum(axis=1, keepdims=True)
        for index, category in enumerate(CATEGORIES):
            column = _INDEX[cells.sampled_cell(phase, category)]
            costs[:, column] += times_ns[:, place] * shares[:, index]
    costs /= count[:, None]
    costs[:, _INDEX["client_cpu"]] = weights @ arm.client_cpu_ns / count
    sample_counts = {
        phase: int(arm.samples[:, place, :].sum()) for place, phase in enumerate(SAMPLED_PHASES)
    }
    return ArmCosts(weights @ arm.latency_ns / count, costs, sample_counts)


def _close(plaintext: ArmCosts, tls: ArmCosts) -> None:
    """Fill in the client's cell, and what is left, so that cells sum to the latency of each arm.

    While the client computes, the server waits for it: the client's CPU time is in the server's
    waits already, as far as it fits in there. Only what TLS adds beyond that is the client's.
    """
    cpu, client = _INDEX["client_cpu"], _INDEX["client"]
    waits = [_INDEX[name] for name in CLIENT_WAITS]
    low, high = plaintext.cells_ns, tls.cells_ns
    low_waits_ns, high_waits_ns = low[:, waits].sum(axis=1), high[:, waits].sum(axis=1)
    added_ns = high[:, cpu] - low[:, cpu]
    covered_ns = np.clip(high_waits_ns - low_waits_ns, 0.0, np.maximum(0.0, added_ns))
    low[:, client] = np.maximum(0.0, low[:, cpu] - low_waits_ns)
    high[:, client] = low[:, client] + added_ns - covered_ns
    for arm in (plaintext, tls):
        explained_ns = arm.cells_ns[:, : len(KINDS)].sum(axis=1)
        arm.cells_ns[:, _INDEX["unexplained"]] = arm.latency_ns - explained_ns


def _measure(values: Floats, round_count: int) -> Measure:
    """The estimate (first row) with the interval of the resamples (the other rows)."""
    if len(values) == 1:
        return Measure(float(values[0]))
    return Measure(float(values[0]), *interval(values[1:], round_count))


def _lines(
    plaintext: ArmCosts, tls: ArmCosts, round_count: int, total: Measure | None
) -> list[Cell]:
    """All cells in order; bars of the waterfall start where the previous one ended."""
    position_ns = float(plaintext.latency_ns[0])
    lines = []
    for index, kind in enumerate(_COLUMNS):
        values = tls.cells_ns[:, index] - plaintext.cells_ns[:, index]
        difference = _measure(values, round_count)
        on_path = kind not in BESIDE
        start_ns = position_ns if on_path else 0.0
        end_ns = start_ns + difference.value_ns
        position_ns = end_ns if on_path else position_ns
        share = None
        if on_path and total is not None and total.value_ns > 0:
            share = difference.value_ns / total.value_ns
        costs = float(plaintext.cells_ns[0, index]), float(tls.cells_ns[0, index])
        verdict = judge(difference)
        samples = _samples_behind(kind, tls.sample_counts)
        lines.append(Cell(*kind, *costs, difference, share, verdict, start_ns, end_ns, samples))
    return lines


def _samples_behind(kind: CellKind, counts: Mapping[str, int]) -> int | None:
    """Samples of the phases that the cell is a part of; None for cells that need none."""
    if kind.basis != "sampled":
        return None
    phases = {"handshake": ("handshake",), "record": ("record_read", "record_write")}
    return sum(counts[phase] for phase in phases.get(kind.group, SAMPLED_PHASES))


def _throughput(runs: Sequence[Run]) -> float:
    """Operations per second of driver time."""
    seconds = sum(run.end_ns - run.start_ns for run in runs) / 1e9
    return sum(run.operation_count for run in runs) / seconds if seconds > 0 else 0.0


def _note(round_count: int) -> str:
    if round_count < MIN_ROUNDS:
        return (
            f"No intervals: {round_count} paired rounds are fewer than {MIN_ROUNDS}, "
            "so the differences may be noise."
        )
    note = f"95 % intervals from {RESAMPLES:,} bootstrap resamples over {round_count} paired rounds"
    if round_count < WIDE_ROUNDS:
        return f"{note}; so few rounds make them about as wide as the range of the rounds."
    return f"{note}."


def _refused(name: str, plaintext: Group, tls: Group, reason: str) -> Comparison:
    group = tls if tls.runs else plaintext
    return Comparison(
        name=name,
        driver=group.driver,
        scenario=group.scenario,
        operation=group.operation,
        refusal=reason,
        sentence=f"{name}: not compared, because {reason}.",
        note="",
        round_count=0,
        resample_count=0,
        operation_counts={},
        latency={},
        throughput_per_second={},
        difference=None,
        ratio=None,
        verdict=NO_INTERVAL,
        cells=[],
        beside=[],
    )

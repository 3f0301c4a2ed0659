# SPDX-License-Identifier: GPL-2.0-only
"""Plaintext against TLS: the waterfall per operation, with bootstrap intervals over rounds.

Per arm, each step is time over operations, both summed over the rounds. Sampled steps are the
exact on-CPU time of the phase times the category's share of the samples. A resample draws rounds
with replacement, both arms of a round together, and recomputes every step, so the intervals include
the noise of the machine, of the driver and of sampling. The steps and `unexplained` sum to the
difference of the client's latency by construction.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.compare.rounds import COLUMNS, ArmCosts, close, costs_of, gather, paired_rounds
from tlstax.analysis.compare.waterfall_steps import BESIDE, KINDS, SAMPLED_PHASES, StepKind
from tlstax.analysis.model.tables import (
    Comparison,
    Measure,
    Ratio,
    WaterfallStep,
)
from tlstax.analysis.rows import operations
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.bootstrap import estimate, interval_note, resample_weights
from tlstax.collectors.capture.schema import Run

NO_DIFFERENCE: Final = "no difference seen"
NO_INTERVAL: Final = "no interval"


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
    weights = resample_weights(len(rounds))
    arms = {
        group.arm: costs_of(gather(group, rounds, tables, sums, counts), weights)
        for group in (plaintext, tls)
    }
    low, high = arms["plaintext"], arms["tls"]
    close(low, high)
    difference = Measure(*estimate(high.latency_ns - low.latency_ns, len(rounds)))
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
        note=interval_note([len(rounds)], "paired rounds"),
        round_count=len(rounds),
        resample_count=len(weights) - 1,
        operation_counts={
            arm: sum(run.operation_count for run in runs) for arm, runs in used.items()
        },
        latency={
            arm: Measure(*estimate(costs.latency_ns, len(rounds))) for arm, costs in arms.items()
        },
        throughput_per_second={arm: _throughput(runs) for arm, runs in used.items()},
        difference=difference,
        ratio=Ratio(*estimate(high.latency_ns / low.latency_ns, len(rounds))),
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
            return f"no operation finished in the {group.arm} runs"
    if not paired_rounds(plaintext.runs, tls.runs):
        return "no round has a complete run of both arms"
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


def judge(difference: Measure) -> str:
    """The verdict on a difference: more, less, no difference seen, or no interval."""
    if difference.low_ns is None or difference.high_ns is None:
        return NO_INTERVAL
    if difference.low_ns <= 0 <= difference.high_ns:
        return NO_DIFFERENCE
    return "more" if difference.low_ns > 0 else "less"


def _lines(
    plaintext: ArmCosts, tls: ArmCosts, round_count: int, total: Measure | None
) -> list[WaterfallStep]:
    """All steps in order; bars of the waterfall start where the previous one ended."""
    position_ns = float(plaintext.latency_ns[0])
    lines = []
    for index, kind in enumerate(COLUMNS):
        values = tls.steps_ns[:, index] - plaintext.steps_ns[:, index]
        difference = Measure(*estimate(values, round_count))
        on_path = kind not in BESIDE
        start_ns = position_ns if on_path else 0.0
        end_ns = start_ns + difference.value_ns
        position_ns = end_ns if on_path else position_ns
        share = None
        if on_path and total is not None and total.value_ns > 0:
            share = difference.value_ns / total.value_ns
        costs = float(plaintext.steps_ns[0, index]), float(tls.steps_ns[0, index])
        verdict = judge(difference)
        samples = _samples_behind(kind, tls.sample_counts)
        lines.append(
            WaterfallStep(*kind, *costs, difference, share, verdict, start_ns, end_ns, samples)
        )
    return lines


def _samples_behind(kind: StepKind, counts: Mapping[str, int]) -> int | None:
    """Samples of the phases that the step is a part of; None for steps that need none."""
    if kind.basis != "sampled":
        return None
    phases = {"handshake": ("handshake",), "record": ("record_read", "record_write")}
    return sum(counts[phase] for phase in phases.get(kind.group, SAMPLED_PHASES))


def _throughput(runs: Sequence[Run]) -> float:
    """Operations per second of driver time."""
    seconds = sum(run.end_ns - run.start_ns for run in runs) / 1e9
    return sum(run.operation_count for run in runs) / seconds if seconds > 0 else 0.0


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

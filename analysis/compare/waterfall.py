# SPDX-License-Identifier: GPL-2.0-only
"""Plaintext against TLS: the waterfall per operation, with the intervals of medians over units.

A unit is a round, or a start of the server with all of its rounds where there are several starts.
Per arm and unit, each step is time over operations. Sampled steps are the exact on-CPU time of the
phase times the category's share of the samples. A step is the median of its differences, unit by
unit, so it includes the noise of the machine, of the driver and of sampling. The steps and
`unexplained` sum to the difference of the client's latency by construction.
"""

from collections.abc import Mapping, Sequence

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.compare import server_cost
from tlstax.analysis.compare.rounds import close, costs_of, gather, paired_rounds
from tlstax.analysis.compare.step_changes import StepChange, step_changes, unexplained
from tlstax.analysis.compare.waterfall_steps import BESIDE, KINDS, SAMPLED_PHASES, StepKind
from tlstax.analysis.model.tables import Comparison, Ratio, WaterfallStep
from tlstax.analysis.rows import operations, round_units
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.round_units import RoundUnits
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics import units as units_of
from tlstax.analysis.statistics.verdicts import MORE, NO_INTERVAL, judge
from tlstax.collectors.capture.schema import Run


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
    of = round_units.of_runs(tls.runs, rounds, "paired rounds")
    units = of.units
    weights = units_of.unit_weights(units.count)
    arms = {
        group.arm: costs_of(gather(group, of.unit_of, tables, sums, counts), weights)
        for group in (plaintext, tls)
    }
    low, high = arms["plaintext"], arms["tls"]
    close(low, high)
    pair = low.latency_ns, high.latency_ns, (units, units)
    found = medians.difference(*pair, is_paired=True)
    verdict = judge(found)
    used = {
        group.arm: [run for run in group.runs if run.round in rounds] for group in (plaintext, tls)
    }
    changes = step_changes((low, high), (units, units), is_paired=True)
    is_more = verdict in (MORE, NO_INTERVAL) and found.value > 0
    is_seen = is_more and not server_cost.is_unseen(verdict, found.measure())
    whole_ns = found.value if is_seen else None
    lines = _lines(changes, high.sample_counts, whole_ns)
    cells = lines[: len(KINDS) + 1]
    return Comparison(
        name=name,
        driver=tls.driver,
        scenario=tls.scenario,
        operation=operations.operation_name(tls.runs),
        refusal=None,
        sentence="",
        note=units_of.interval_note([units]),
        round_count=len(rounds),
        operation_counts={
            arm: sum(run.operation_count for run in runs) for arm, runs in used.items()
        },
        latency={
            arm: medians.estimate(costs.latency_ns, units).measure() for arm, costs in arms.items()
        },
        throughput_per_second={arm: _throughput(runs, of) for arm, runs in used.items()},
        difference=found.measure(),
        ratio=medians.ratio(*pair, is_paired=True).ratio(),
        verdict=verdict,
        cells=cells,
        beside=lines[len(KINDS) + 1 :],
        unexplained={arm: unexplained(costs, units) for arm, costs in arms.items()},
        server_cpu=server_cost.server_cpu((plaintext, tls), of, tables, sums),
        causes=server_cost.causes(cells, (low, high), units, whole_ns),
        start_count=of.start_count,
    )


def refusal(plaintext: Group, tls: Group, tables: Tables) -> str | None:
    """Why two arms must not be compared, or None."""
    for group in (plaintext, tls):
        if not group.runs:
            return f"there is no {group.arm} run"
        if not group.operation_count:
            return f"no operation finished in the {group.arm} runs"
        if all(run.client_mean_ns <= 0 for run in group.runs):
            return f"the clients measured no latency in the {group.arm} runs"
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


def _lines(
    changes: Sequence[StepChange], samples: Mapping[str, int], whole_ns: float | None
) -> list[WaterfallStep]:
    """The steps with their share of what TLS adds, if it adds anything."""
    return [
        WaterfallStep(
            *line.kind,
            line.before_ns,
            line.after_ns,
            line.difference,
            line.difference.value_ns / whole_ns if whole_ns and line.kind not in BESIDE else None,
            line.verdict,
            line.start_ns,
            line.end_ns,
            _samples_behind(line.kind, samples),
            line.p_value,
        )
        for line in changes
    ]


def _samples_behind(kind: StepKind, counts: Mapping[str, int]) -> int | None:
    """Samples of the phases that the step is a part of; None for steps that need none."""
    if kind.basis != "sampled":
        return None
    phases = {"handshake": ("handshake",), "record": ("record_read", "record_write")}
    return sum(counts[phase] for phase in phases.get(kind.group, SAMPLED_PHASES))


def _throughput(runs: Sequence[Run], of: RoundUnits) -> Ratio:
    """Operations per second of driver time, the median of the units."""
    each = []
    for unit in range(of.units.count):
        mine = [run for run in runs if of.unit_of[run.round] == unit]
        seconds = sum(run.end_ns - run.start_ns for run in mine) / 1e9
        each.append(sum(run.operation_count for run in mine) / seconds if seconds > 0 else 0.0)
    return medians.of_values(each, of.units).ratio()


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
        operation_counts={},
        latency={},
        throughput_per_second={},
        difference=None,
        ratio=None,
        verdict=NO_INTERVAL,
        cells=[],
        beside=[],
    )

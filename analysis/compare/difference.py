# SPDX-License-Identifier: GPL-2.0-only
"""Compare two recordings, or two arms of an experiment, operation by operation.

Every figure is time per operation, for each round of one experiment or each block of a recording,
as in `waterfall`. Steps, categories, functions and waits are marked as changed together: few of the
marked ones are noise.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from tlstax.analysis.classify import flames
from tlstax.analysis.classify.profiles import fold as stacks_of
from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.compare import changes, replicates, selections
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.rounds import ArmCosts, close, costs_of
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.compare.step_changes import (
    StepChange,
    beside,
    on_path,
    step_changes,
    unexplained,
)
from tlstax.analysis.compare.waterfall_steps import SAMPLED_PHASES
from tlstax.analysis.model.difference import (
    DIFFERENCE_VERSION,
    Change,
    ChangeNode,
    Difference,
    FlamePair,
    LatencyPair,
    PairDifference,
    Step,
)
from tlstax.analysis.quantities import factor_text, measure_text, time_text, unseen_text
from tlstax.analysis.rows import handshakes, latency
from tlstax.analysis.rows.edges import open_commands
from tlstax.analysis.statistics import medians, verdicts
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import interval_note
from tlstax.analysis.statistics.verdicts import MORE, NO_DIFFERENCE, NO_INTERVAL

SHOWN_FUNCTIONS: Final = 20
SHOWN_WAITS: Final = 12
AT_CLIENT: Final = "latency at the client"
AT_SERVER: Final = "time of the server's threads"
_PRUNE_SHARE: Final = 0.001
"""Blocks of a flame graph below this share of it are left out."""


def compare_recordings(
    pairs: Sequence[tuple[RecordingSelection, RecordingSelection]],
    per: str | None = None,
    taxonomy: Taxonomy | None = None,
) -> Difference:
    """The comparison of each pair; `per` counts by connection, handshake or query instead."""
    rules = taxonomy or builtin()
    lines = [compare_pair(before, after, per, rules) for before, after in pairs]
    return Difference(DIFFERENCE_VERSION, "What changed, operation by operation", lines)


def compare_pair(
    before: RecordingSelection, after: RecordingSelection, per: str | None, taxonomy: Taxonomy
) -> PairDifference:
    """One pair, compared or refused."""
    by_driver = per is None and bool(before.group.runs) and bool(after.group.runs)
    unit = selections.choose_unit(before, after, per)
    reasons = selections.refusals(before, after, unit, by_driver=by_driver)
    if reasons:
        return _refused(before, after, unit, reasons)
    both = replicates.paired(before, after, unit, taxonomy, by_driver=by_driver)
    reasons = selections.too_few(
        [side.size for side in both],
        [before.label, after.label],
        "windows" if both[0].units.is_serial else both[0].units.name,
    )
    if reasons:
        return _refused(before, after, unit, reasons)
    return _compared(both, unit, taxonomy, by_driver=by_driver)


def _compared(
    both: tuple[Replicates, Replicates], unit: str, taxonomy: Taxonomy, *, by_driver: bool
) -> PairDifference:
    before, after = both
    is_paired = replicates.are_paired(before.side, after.side, by_driver=by_driver)
    old, new = (costs_of(side.arm, side.weights) for side in both)
    close(old, new, is_paired=is_paired)
    units = before.units, after.units
    found = medians.difference(old.latency_ns, new.latency_ns, units, is_paired=is_paired)
    steps = step_changes((old, new), units, is_paired=is_paired, is_driven=by_driver)
    totals = [
        medians.estimate(arm.latency_ns, side.units) for arm, side in ((old, before), (new, after))
    ]
    timeless = [
        f"{side.side.label} has no time for a {unit}"
        for side, total in zip(both, totals, strict=True)
        if not total.value > 0
    ]
    if timeless:
        return _refused(before.side, after.side, unit, timeless)
    total_ns = max(total.value for total in totals)

    def tabulate(times: tuple[changes.Times, changes.Times]) -> list[Change]:
        return changes.shown(changes.tabulate(both, times, is_paired=is_paired), total_ns)

    line = PairDifference(
        name=f"{before.side.label} → {after.side.label}",
        before=selections.facts(before.side, before.size, float(before.operations[0])),
        after=selections.facts(after.side, after.size, float(after.operations[0])),
        refusals=[],
        cautions=selections.cautions(before.side, after.side, unit, by_driver=by_driver),
        sentence="",
        operation=unit,
        total_name=AT_CLIENT if by_driver else AT_SERVER,
        note=interval_note(units),
        totals=[total.measure() for total in totals],
        difference=found.measure(),
        ratio=medians.ratio(old.latency_ns, new.latency_ns, units, is_paired=is_paired).ratio(),
        verdict=verdicts.judge(found),
        steps=[_step(step, old, new) for step in on_path(steps)],
        beside=[_step(step, old, new) for step in beside(steps)],
        categories=changes.in_order(
            tabulate((changes.categories(before), changes.categories(after)))
        ),
        functions=_functions(both, taxonomy, tabulate),
        waits=tabulate((changes.waits(before), changes.waits(after)))[:SHOWN_WAITS],
        latencies=_latencies(before.side, after.side),
        flames=_flames(both, unit, taxonomy, by_driver=by_driver),
        unexplained=[unexplained(old, units[0]), unexplained(new, units[1])] if by_driver else [],
    )
    judged = _judged(line)
    return dataclasses.replace(judged, sentence=_sentence(judged, by_driver=by_driver))


def _judged(line: PairDifference) -> PairDifference:
    """All lines of all tables judged together, those with a verdict first."""
    tables = (line.steps, line.beside, line.categories, line.functions, line.waits)
    said = iter(
        verdicts.judge_all(
            [(Estimate.of(one.difference), one.p_value) for table in tables for one in table]
        )
    )
    steps, besides = (
        [dataclasses.replace(one, verdict=next(said)) for one in table] for table in tables[:2]
    )
    categories, functions, waits = (
        [dataclasses.replace(one, verdict=next(said)) for one in table] for table in tables[2:]
    )
    functions.sort(key=lambda one: one.verdict == NO_DIFFERENCE)
    return dataclasses.replace(
        line,
        steps=steps,
        beside=besides,
        categories=categories,
        functions=functions,
        waits=waits,
    )


def _step(line: StepChange, old: ArmCosts, new: ArmCosts) -> Step:
    """A step of the waterfall."""
    return line.step([_samples(line.kind.group, arm) for arm in (old, new)])


def _samples(group: str, arm: ArmCosts) -> int:
    phases = {"handshake": ("handshake",), "record": ("record_read", "record_write")}
    return sum(arm.sample_counts[phase] for phase in phases.get(group, SAMPLED_PHASES))


def _functions(
    both: tuple[Replicates, Replicates],
    taxonomy: Taxonomy,
    tabulate: Callable[[tuple[changes.Times, changes.Times]], list[Change]],
) -> list[Change]:
    """Functions whose time changed, with the samples behind them."""
    (old, old_samples), (new, new_samples) = (changes.functions(side, taxonomy) for side in both)
    lines = [
        dataclasses.replace(
            line,
            sample_counts=[
                old_samples.get((line.name, line.kind), 0),
                new_samples.get((line.name, line.kind), 0),
            ],
        )
        for line in tabulate((old, new))
    ]
    # Functions with a verdict come first.
    lines.sort(key=lambda line: line.verdict == NO_DIFFERENCE)
    return lines[:SHOWN_FUNCTIONS]


def _latencies(before: RecordingSelection, after: RecordingSelection) -> list[LatencyPair]:
    """The distributions of every phase, and of whole handshakes."""
    found = []
    buckets = [
        latency.merge(side.tables.latencies, side.group.window_ids) for side in (before, after)
    ]
    walls = [
        latency.bucketize(
            row.end_ns - row.start_ns
            for row in handshakes.select(side.tables.handshakes, side.group)
            if row.outcome == "success"
        )
        for side in (before, after)
    ]
    for side, wall in zip(buckets, walls, strict=True):
        if wall:
            side["handshake_wall"] = wall
    unfinished = [
        open_commands.lengths_ns(side.tables.unfinished, side.group.window_ids)
        for side in (before, after)
    ]
    for phase in {**buckets[0], **buckets[1]}:
        pair = [
            latency.distribution(
                f"{name}/{phase}",
                side.label,
                phase,
                mine.get(phase, {}),
                unfinished_ns=longer if phase == "command" else (),
            )
            for name, side, mine, longer in zip(
                ("before", "after"), (before, after), buckets, unfinished, strict=True
            )
        ]
        found.append(LatencyPair(phase, pair[0], pair[1]))
    return found


def _flames(
    both: tuple[Replicates, Replicates], unit: str, taxonomy: Taxonomy, *, by_driver: bool
) -> list[FlamePair]:
    """CPU time and waits of both sides in one tree each."""
    graphs = []
    for kind in ("on_cpu", "off_cpu"):
        profiles = []
        for side in both:
            made = stacks_of(side.side.group, kind, side.side.tables, taxonomy)
            operations = round(side.operations[0])
            label = side.side.label
            profiles.append(flames.Profile(label, made.folded, made.count, operations, unit))
        if not any(profile.folded for profile in profiles):
            continue
        root = flames.difference(*profiles)
        graphs.append(
            FlamePair(
                kind,
                flames.unit(*profiles),
                root.before,
                root.after,
                [profile.count for profile in profiles],
                _tree(root),
            )
        )
    return graphs


def _tree(root: flames.Block) -> ChangeNode:
    """The visible blocks as plain values; without recursion, as stacks can be deep."""
    least = root.width * _PRUNE_SHARE
    top = _node(root)
    waiting = [(root, top)]
    while waiting:
        block, node = waiting.pop()
        for child in sorted(block.children.values(), key=lambda one: (-one.width, one.name)):
            if child.width >= least:
                node["children"].append(_node(child))
                waiting.append((child, node["children"][-1]))
    return top


def _node(block: flames.Block) -> ChangeNode:
    return ChangeNode(
        name=block.text,
        category=block.category,
        before_ns=block.before,
        after_ns=block.after,
        is_noise=block.is_noise,
        children=[],
    )


def _sentence(line: PairDifference, *, by_driver: bool) -> str:
    """The result in one sentence, with the step that explains most of it."""
    assert line.difference is not None
    assert line.ratio is not None
    old, new = (time_text(total.value_ns) for total in line.totals)
    what = f"A {line.operation}"
    text = unseen_text if line.verdict == NO_DIFFERENCE else measure_text
    size = f"{old} → {new} ({text(line.difference)})"
    if line.verdict == NO_INTERVAL:
        return f"{what}: {size}; too few {'rounds' if by_driver else 'windows'} for a verdict."
    if line.verdict == NO_DIFFERENCE:
        return f"{what}: {line.verdict}, {size}."
    sign = 1 if line.verdict == MORE else -1
    steps = [step for step in line.steps if step.verdict == line.verdict]
    steps.sort(key=lambda step: -sign * step.difference.value_ns)
    because = "; ".join(f"{step.label} {measure_text(step.difference)}" for step in steps[:1])
    tail = f"; most of it in {because}" if because else ", in no single step"
    return f"{what} takes {factor_text(line.ratio.value)}, {size}{tail}."


def _refused(
    before: RecordingSelection, after: RecordingSelection, unit: str, reasons: list[str]
) -> PairDifference:
    name = f"{before.label} → {after.label}"
    return PairDifference(
        name=name,
        before=selections.facts(before, 0, 0.0),
        after=selections.facts(after, 0, 0.0),
        refusals=reasons,
        cautions=[],
        sentence=f"Not compared: {'; '.join(reasons)}.",
        operation=unit,
        total_name="",
        note="",
        totals=[],
        difference=None,
        ratio=None,
        verdict=NO_INTERVAL,
    )
